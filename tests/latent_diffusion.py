"""The autoencoder of Rombach et al. 2022 in plain functions, on weights under the names of the authors' checkpoints."""

import torch
from torch.nn import functional

GROUPS = 32


def weights(widths=(32, 64), blocks=1, latent_channels=4, channels=3, quant=True, attention=True):
    """Draws weights by name, in float64."""
    state = {}

    def conv(name, channels_in, channels_out, size=3):
        state[f"{name}.weight"] = torch.randn(channels_out, channels_in, size, size) / (size * channels_in**0.5)
        state[f"{name}.bias"] = torch.randn(channels_out) / 10

    def norm(name, width):
        state[f"{name}.weight"], state[f"{name}.bias"] = 1 + torch.randn(width) / 10, torch.randn(width) / 10

    def block(name, before, after):
        norm(f"{name}.norm1", before)
        conv(f"{name}.conv1", before, after)
        norm(f"{name}.norm2", after)
        conv(f"{name}.conv2", after, after)
        if before != after:
            conv(f"{name}.nin_shortcut", before, after, 1)

    def middle(name, width):
        block(f"{name}.block_1", width, width)
        block(f"{name}.block_2", width, width)
        if attention:
            norm(f"{name}.attn_1.norm", width)
            for part in ("q", "k", "v", "proj_out"):
                conv(f"{name}.attn_1.{part}", width, width, 1)

    conv("encoder.conv_in", channels, widths[0])
    conv("decoder.conv_in", latent_channels, widths[-1])
    before = widths[0]
    for level, width in enumerate(widths):
        for index in range(blocks):
            block(f"encoder.down.{level}.block.{index}", width if index else before, width)
        before = width
        if level < len(widths) - 1:
            conv(f"encoder.down.{level}.downsample.conv", width, width)
    for level, width in reversed([*enumerate(widths)]):
        for index in range(blocks + 1):
            block(f"decoder.up.{level}.block.{index}", width if index else before, width)
        before = width
        if level:
            conv(f"decoder.up.{level}.upsample.conv", width, width)
    for part, width, out in (("encoder", widths[-1], 2 * latent_channels), ("decoder", widths[0], channels)):
        middle(f"{part}.mid", widths[-1])
        norm(f"{part}.norm_out", width)
        conv(f"{part}.conv_out", width, out)
    if quant:
        conv("quant_conv", 2 * latent_channels, 2 * latent_channels, 1)
        conv("post_quant_conv", latent_channels, latent_channels, 1)
    return {name: value.double() for name, value in state.items()}


def _conv(state, name, features, **settings):
    weight = state[f"{name}.weight"]
    return functional.conv2d(features, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2, **settings)


def _norm(state, name, features):
    return functional.group_norm(features, GROUPS, state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)


def _block(state, name, features):
    inner = _conv(state, f"{name}.conv1", functional.silu(_norm(state, f"{name}.norm1", features)))
    inner = _conv(state, f"{name}.conv2", functional.silu(_norm(state, f"{name}.norm2", inner)))
    if f"{name}.nin_shortcut.weight" in state:
        features = _conv(state, f"{name}.nin_shortcut", features)
    return features + inner


def _middle(state, name, features):
    features = _block(state, f"{name}.block_1", features)
    if f"{name}.attn_1.q.weight" in state:
        normal = _norm(state, f"{name}.attn_1.norm", features)
        query, key, value = (_conv(state, f"{name}.attn_1.{part}", normal).flatten(2) for part in "qkv")
        attended = value @ (query.mT @ key / query.shape[1] ** 0.5).softmax(-1).mT
        features = features + _conv(state, f"{name}.attn_1.proj_out", attended.unflatten(2, features.shape[2:]))
    return _block(state, f"{name}.block_2", features)


def encode(state, images):
    """Returns means and log variances."""
    features, level = _conv(state, "encoder.conv_in", images), 0
    while f"encoder.down.{level}.block.0.conv1.weight" in state:
        index = 0
        while f"encoder.down.{level}.block.{index}.conv1.weight" in state:
            features = _block(state, f"encoder.down.{level}.block.{index}", features)
            index += 1
        name = f"encoder.down.{level}.downsample.conv"
        if f"{name}.weight" in state:  # a pixel is added on the right and at the bottom
            features = functional.pad(features, (0, 1, 0, 1))
            features = functional.conv2d(features, state[f"{name}.weight"], state[f"{name}.bias"], stride=2)
        level += 1
    features = _middle(state, "encoder.mid", features)
    moments = _conv(state, "encoder.conv_out", functional.silu(_norm(state, "encoder.norm_out", features)))
    return _conv(state, "quant_conv", moments) if "quant_conv.weight" in state else moments


def decode(state, latents):
    """Returns images in [-1, 1]."""
    features = _conv(state, "post_quant_conv", latents) if "post_quant_conv.weight" in state else latents
    features = _middle(state, "decoder.mid", _conv(state, "decoder.conv_in", features))
    for level in reversed(range(10)):
        index = 0
        while f"decoder.up.{level}.block.{index}.conv1.weight" in state:
            features = _block(state, f"decoder.up.{level}.block.{index}", features)
            index += 1
        if f"decoder.up.{level}.upsample.conv.weight" in state:
            enlarged = functional.interpolate(features, scale_factor=2)
            features = _conv(state, f"decoder.up.{level}.upsample.conv", enlarged)
    return _conv(state, "decoder.conv_out", functional.silu(_norm(state, "decoder.norm_out", features)))
