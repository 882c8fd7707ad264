"""GANs for PyTorch Lightning, the same on one process and on several.

    from lit_gans import DCGAN, load

Every GAN of `lit_gans.models` can be imported from here; modules are imported lazily, on first access.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_gans.common.errors import RefusedInput
    from lit_gans.config.build import build
    from lit_gans.config.hydra_app import compose
    from lit_gans.config.load import load
    from lit_gans.data.sources.digits import Digits
    from lit_gans.models.autoencoder_kl import AutoencoderKL
    from lit_gans.models.cyclegan import CycleGAN
    from lit_gans.models.d2gan import D2GAN
    from lit_gans.models.d3gan import D3GAN
    from lit_gans.models.dcgan import DCGAN
    from lit_gans.models.gan import GAN
    from lit_gans.models.image_gan import ImageGAN
    from lit_gans.models.pix2pix import Pix2Pix
    from lit_gans.models.projected_gan import ProjectedGAN
    from lit_gans.models.r3gan import R3GAN
    from lit_gans.models.sngan import SNGAN
    from lit_gans.models.wgan_gp import WGANGP
    from lit_gans.networks.features import WithFeatures
    from lit_gans.training.adaptive_weight import record_layer
    from lit_gans.training.adversary import Adversary
    from lit_gans.training.augmentation import Adaptive, Scheduled
    from lit_gans.training.losses import Scored
    from lit_gans.training.module import AdversarialModule
    from lit_gans.training.schedules import CosineSchedule, LinearSchedule

__version__ = "0.1.0"

_PLACES = {
    "Adaptive": "lit_gans.training.augmentation",
    "AdversarialModule": "lit_gans.training.module",
    "Adversary": "lit_gans.training.adversary",
    "CosineSchedule": "lit_gans.training.schedules",
    "Digits": "lit_gans.data.sources.digits",
    "LinearSchedule": "lit_gans.training.schedules",
    "RefusedInput": "lit_gans.common.errors",
    "Scheduled": "lit_gans.training.augmentation",
    "Scored": "lit_gans.training.losses",
    "WithFeatures": "lit_gans.networks.features",
    "build": "lit_gans.config.build",
    "compose": "lit_gans.config.hydra_app",
    "load": "lit_gans.config.load",
    "record_layer": "lit_gans.training.adaptive_weight",
}

__all__ = [
    "D2GAN",
    "D3GAN",
    "DCGAN",
    "GAN",
    "R3GAN",
    "SNGAN",
    "WGANGP",
    "Adaptive",
    "AdversarialModule",
    "Adversary",
    "AutoencoderKL",
    "CosineSchedule",
    "CycleGAN",
    "Digits",
    "ImageGAN",
    "LinearSchedule",
    "Pix2Pix",
    "ProjectedGAN",
    "RefusedInput",
    "Scheduled",
    "Scored",
    "WithFeatures",
    "build",
    "compose",
    "load",
    "record_layer",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        from lit_gans.config.registry import gan_files

        stem = gan_files().get(name.lower())
        place = f"lit_gans.models.{stem}" if stem else None
    found = getattr(importlib.import_module(place), name, None) if place else None
    if found is None:
        raise AttributeError(f"module 'lit_gans' has no attribute '{name}'{_instead(name)}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]  # includes names that have not been imported yet, for tab completion


def _instead(name: str) -> str:
    """Returns the end of an error message about a name that does not exist."""
    if name == "train":
        return "; use module, data, trainer = build(compose('model=dcgan', 'data=digits')); trainer.fit(module, data)"
    names = {known.lower(): known for known in __all__}
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean '{names[close[0]]}'?" if close else ""


# otherwise the first of the classes above registers the names of the strategies
if {"lightning.pytorch.strategies", "pytorch_lightning.strategies"} & sys.modules.keys():
    importlib.import_module("lit_gans.strategies")
