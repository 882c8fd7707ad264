"""Networks in plain PyTorch, independent of Lightning, devices and ranks."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size
from lit_gans.networks import dcgan, fastgan, mlp, r3gan, resnet
from lit_gans.networks.blocks import coarsest_map

NetworkName = Literal["dcgan", "resnet", "mlp", "r3gan", "fastgan"]

_PAIRS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "dcgan": (dcgan.DCGANGenerator, dcgan.DCGANDiscriminator),
    "resnet": (resnet.ResNetGenerator, resnet.ResNetDiscriminator),
    "mlp": (mlp.MLPGenerator, mlp.MLPDiscriminator),
    "fastgan": (fastgan.FastGANGenerator, dcgan.DCGANDiscriminator),
    "r3gan": (r3gan.R3GANGenerator, r3gan.R3GANDiscriminator),
}
_DISABLED = (None, False, 0, "plain", "none")  # values of an option that networks without the option accept


def refuse_options(network: NetworkName, image_size: Size, **options: Any) -> None:
    """Raises `RefusedInput` for an unsupported size, or if an option is set that neither network has."""
    if network != "mlp":
        coarsest_map(image_size, network)
    known = {name for cls in _PAIRS[network] for name in inspect.signature(cls).parameters}
    _supported_options(network, known, options)


def build_generator(network: NetworkName, **options: Any) -> nn.Module:
    """Returns a new generator of the named network. Options that are None use the network's defaults.

    Raises:
        RefusedInput: if the network does not have an option.
    """
    return _build(network, 0, options)


def build_discriminator(network: NetworkName, **options: Any) -> nn.Module:
    """Returns a new discriminator of the named network, see `build_generator`."""
    return _build(network, 1, options)


def _build(network: NetworkName, index: int, options: dict[str, Any]) -> nn.Module:
    cls = _PAIRS[network][index]
    return cls(**_supported_options(network, set(inspect.signature(cls).parameters), options))


def _supported_options(network: str, known: set[str], options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that are not None and that the network has.

    Raises:
        RefusedInput: if an option is set that the network does not have, because it would be ignored silently.
    """
    for name, value in options.items():
        if name not in known and value not in _DISABLED:
            raise RefusedInput(f"{name}={value}: the {network} networks have no such option.")
    return {name: value for name, value in options.items() if name in known and value is not None}
