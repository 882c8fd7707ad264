"""Exports autoencoders as folders that `diffusers.AutoencoderKL` loads."""

from __future__ import annotations

from math import gcd
from pathlib import Path
from typing import cast

from torch import nn

from lit_gans.checkpoints.diffusers import CONFIG, DOWN, UP, WEIGHTS, read_config, write_diffusers
from lit_gans.checkpoints.exported import CARD
from lit_gans.common.errors import RefusedInput, refuse_not_positive
from lit_gans.common.size import sides
from lit_gans.export.safetensors import Dtype, refuse_other_files, to_float16
from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.networks.autoencoder import Attention, Autoencoder
from lit_gans.networks.autoencoder_names import to_diffusers
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import Weights


def save_diffusers(
    module: AdversarialModule,
    folder: str | Path,
    weights: Weights | None = None,
    dtype: Dtype = "float32",
    scaling_factor: float | None = None,
    shift_factor: float | None = None,
) -> Path:
    """Writes an autoencoder to a folder that `diffusers.AutoencoderKL.from_pretrained` loads, and returns the path.

    Args:
        module: an `AutoencoderKL` with `quantizer="kl"`, `asymmetric_padding=True` and the same `groups` everywhere.
        folder: folder to write to. The files of another autoencoder are replaced.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        dtype: data type of the weights.
        scaling_factor, shift_factor: factors for diffusion models; null uses the factors of the module.

    Raises:
        RefusedInput: if diffusers cannot represent the network, averaged weights are requested but do not exist, a
            weight is too large for float16, `scaling_factor` is not greater than 0, or the folder has files of these
            names that are not of an autoencoder.
    """
    module = refuse_for_diffusers(module, scaling_factor)
    refuse_other_files(Path(folder), (WEIGHTS, CONFIG, CARD), read_config)
    network = cast(Autoencoder, module.sampling_generator(weights))
    groups = _groups(network)
    hparams, (height, width) = module.hparams, sides(module.image_size)
    widths = [hparams["generator_width"] * multiplier for multiplier in hparams["multipliers"]]
    config = {
        "in_channels": module.channels,
        "out_channels": module.channels,
        "down_block_types": [DOWN] * len(widths),
        "up_block_types": [UP] * len(widths),
        "block_out_channels": widths,
        "layers_per_block": hparams["blocks"],
        "act_fn": "silu",
        "latent_channels": module.latent_channels,
        "norm_num_groups": groups.pop(),
        "sample_size": height if height == width else [height, width],
        "scaling_factor": module.scaling_factor if scaling_factor is None else scaling_factor,
        "shift_factor": module.shift_factor if shift_factor is None else shift_factor,
        "use_quant_conv": hparams["quant_conv"],
        "use_post_quant_conv": hparams["post_quant_conv"],
        "mid_block_add_attention": any(isinstance(layer, Attention) for layer in network.modules()),
    }
    tensors = to_diffusers(network)
    if dtype == "float16":
        tensors = {name: to_float16(name, value) for name, value in tensors.items()}
    return write_diffusers(folder, config, tensors)


def refuse_for_diffusers(module: AdversarialModule, scaling_factor: float | None) -> AutoencoderKL:
    """Returns the module, if `diffusers.AutoencoderKL` can represent it.

    Raises:
        RefusedInput: if it cannot, or if `scaling_factor` is not greater than 0.
    """
    refuse_not_positive(scaling_factor=scaling_factor)
    if not isinstance(module, AutoencoderKL):
        raise RefusedInput(
            f"format=diffusers writes autoencoders (model=autoencoder_kl), not a {type(module).__name__}: use"
            " format=safetensors."
        )
    groups = _groups(module.generator)
    needed = []
    if module.quantizer != "kl":
        needed.append("model.quantizer=kl")
    if not module.hparams["asymmetric_padding"]:
        needed.append("model.asymmetric_padding=true")
    if len(groups) > 1:
        needed.append(f"model.groups={gcd(*groups)}")
    if needed:
        raise RefusedInput(
            "format=diffusers: diffusers' AutoencoderKL computes something else than this network; train one with"
            f" {' '.join(needed)}, or use format=safetensors."
        )
    return module


def _groups(network: Autoencoder) -> set[int]:
    """Returns the numbers of groups of the group normalizations."""
    return {layer.num_groups for layer in network.modules() if isinstance(layer, nn.GroupNorm)}
