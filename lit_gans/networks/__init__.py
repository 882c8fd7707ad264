"""Plain networks, independent of Lightning, devices and ranks."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.networks import dcgan, mlp, r3gan, resnet
from lit_gans.networks.blocks import refuse_size

NetworkName = Literal["dcgan", "resnet", "mlp", "r3gan"]

_PAIRS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "dcgan": (dcgan.DCGANGenerator, dcgan.DCGANDiscriminator),
    "resnet": (resnet.ResNetGenerator, resnet.ResNetDiscriminator),
    "mlp": (mlp.MLPGenerator, mlp.MLPDiscriminator),
    "r3gan": (r3gan.R3GANGenerator, r3gan.R3GANDiscriminator),
}
_SIZES = {"dcgan": dcgan.SIZES, "resnet": resnet.SIZES, "r3gan": r3gan.SIZES}
_USUAL = (None, False, 0, "plain")  # values of an option that are valid for a network without it


def refuse_options(network: NetworkName, image_size: int, **options: Any) -> None:
    """Raises `RefusedInput` if the named networks do not support a size or an option."""
    if network in _SIZES:
        refuse_size(image_size, _SIZES[network], network)
    for name, value in options.items():
        if value not in _USUAL and not any(name in inspect.signature(cls).parameters for cls in _PAIRS[network]):
            raise RefusedInput(f"{name}={value}: the {network} networks have no such option.")
        if name == "width" and value is not None and value < 1:
            raise RefusedInput(f"width={value} must be at least 1.")


def build_generator(network: NetworkName, **options: Any) -> nn.Module:
    """Returns a new generator by name; ignores options that are None or unsupported."""
    return _build(_PAIRS[network][0], options)


def build_discriminator(network: NetworkName, **options: Any) -> nn.Module:
    """Returns a new discriminator by name; ignores options that are None or unsupported."""
    return _build(_PAIRS[network][1], options)


def _build(cls: type[nn.Module], options: dict[str, Any]) -> nn.Module:
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in options.items() if name in known and value is not None})
