"""Converts the tensors of `Autoencoder` to the names and shapes of `diffusers.AutoencoderKL`, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.autoencoder import Attention, Autoencoder, ResidualBlock

_RESIDUAL = {
    "layers.0": "norm1",
    "layers.2": "conv1",
    "layers.3": "norm2",
    "layers.5": "conv2",
    "skip": "conv_shortcut",
}
_ATTENTION = {"norm": ("group_norm",), "project": ("to_q", "to_k", "to_v"), "out": ("to_out.0",)}


def to_diffusers(network: Autoencoder) -> dict[str, Tensor]:
    """Returns copies of all tensors of a network, with the names and shapes of `diffusers.AutoencoderKL`."""
    tensors: dict[str, Tensor] = {}
    state = network.state_dict()
    for name, parts in _links(network):
        for part, value in zip(parts, state[name].chunk(len(parts)), strict=True):
            shaped = value.flatten(1) if _is_linear(part, value) else value
            tensors[part] = shaped.detach().clone(memory_format=torch.contiguous_format)
    return tensors


def load_diffusers(
    network: Autoencoder, tensors: Mapping[str, Tensor], originals: Mapping[str, str], source: str
) -> None:
    """Copies tensors with the names of `diffusers.AutoencoderKL` into a network.

    Args:
        network: network that receives the tensors.
        tensors: tensors by their names in diffusers.
        originals: names of the same tensors in the file, for error messages.
        source: path of the file, for error messages.

    Raises:
        RefusedInput: if a tensor is unknown or missing, or differs in shape from the network's tensor.
    """
    expected = to_diffusers(network)
    for name in tensors:
        if name not in expected:
            raise RefusedInput(
                f"{source}: {originals[name]} is no tensor of such an AutoencoderKL; expected names such as"
                f" {next(iter(expected))}: only the layout of SD, SDXL and FLUX is supported, which has residual"
                " blocks at each resolution, and attention at the lowest resolution only."
            )
    for name, value in expected.items():
        if name not in tensors:
            raise RefusedInput(f"{source} does not contain {name}: the file is incomplete, or of another autoencoder.")
        found = tuple(tensors[name].flatten(1).shape if _is_linear(name, value) else tensors[name].shape)
        if found != tuple(value.shape):
            raise RefusedInput(
                f"{source}: {originals[name]} has the shape {found}, but its configuration implies"
                f" {tuple(value.shape)}: use the config.json that belongs to these weights."
            )
    shapes = network.state_dict()
    links = _links(network)
    state = {name: torch.cat([tensors[part] for part in parts]).reshape(shapes[name].shape) for name, parts in links}
    network.load_state_dict({**shapes, **state})


def _is_linear(name: str, value: Tensor) -> bool:
    """Returns whether a tensor is the weight of a linear layer in diffusers, and of a 1x1 convolution here."""
    return ".attentions." in name and value.dim() > 1


def _links(network: Autoencoder) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the name of each tensor, and the names of the diffusers tensors that are concatenated to it."""
    for path, theirs in _layers(network):
        layer = network.get_submodule(path)
        inner: dict[str, tuple[str, ...]] = {"": ("",)}
        if isinstance(layer, ResidualBlock):
            inner = {ours: (name,) for ours, name in _RESIDUAL.items() if [*layer.get_submodule(ours).parameters()]}
        elif isinstance(layer, Attention):
            inner = _ATTENTION
        for ours, names in inner.items():
            for kind in ("weight", "bias"):
                yield _joined(path, ours, kind), tuple(_joined(theirs, name, kind) for name in names)


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _layers(network: Autoencoder) -> Iterator[tuple[str, str]]:
    """Yields the path of each layer that has parameters, and its path in diffusers."""
    levels = network.multiple.bit_length()
    for part, names in (("encoder", _encoder(network, levels)), ("decoder", _decoder(network, levels))):
        layers = network.get_submodule(part).named_children()
        paths = [f"{part}.{index}" for index, layer in layers if not isinstance(layer, nn.SiLU)]
        yield from zip(paths, names, strict=True)
    yield "last", "decoder.conv_out"


def _blocks(part: nn.Sequential, levels: int) -> int:
    """Returns the number of residual blocks at each resolution. Two further blocks are in the middle."""
    return (sum(isinstance(layer, ResidualBlock) for layer in part) - 2) // levels


def _encoder(network: Autoencoder, levels: int) -> Iterator[str]:
    blocks = _blocks(network.encoder, levels)
    yield "encoder.conv_in"
    for level in range(levels):
        if level:
            yield f"encoder.down_blocks.{level - 1}.downsamplers.0.conv"
        yield from (f"encoder.down_blocks.{level}.resnets.{block}" for block in range(blocks))
    yield from _middle("encoder", network)
    yield from ("encoder.conv_norm_out", "encoder.conv_out")
    if isinstance(network.encoder[-2], nn.Conv2d):
        yield "quant_conv"


def _decoder(network: Autoencoder, levels: int) -> Iterator[str]:
    blocks = _blocks(network.decoder, levels)
    if isinstance(network.decoder[1], nn.Conv2d):
        yield "post_quant_conv"
    yield "decoder.conv_in"
    yield from _middle("decoder", network)
    for level in range(levels):
        if level:
            yield f"decoder.up_blocks.{level - 1}.upsamplers.0.conv"
        yield from (f"decoder.up_blocks.{level}.resnets.{block}" for block in range(blocks))
    yield "decoder.conv_norm_out"


def _middle(part: str, network: Autoencoder) -> Iterator[str]:
    yield f"{part}.mid_block.resnets.0"
    if any(isinstance(layer, Attention) for layer in network.encoder):
        yield f"{part}.mid_block.attentions.0"
    yield f"{part}.mid_block.resnets.1"
