"""The residual networks at 32x32 as torch-mimicry computes them: the same layers as ours, without our shortcuts.

Skips upsample before their 1x1 convolution and pool after it, upsampling is bilinear, and spectral norm runs a power
iteration in every forward. Shapes: N batch, Z latent size, S image size.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_SMALLEST = 4  # pixels of the generator's first map


class _SpectralWeight(nn.Module):
    """Divides a weight by its largest singular value, in every forward."""

    vector: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("vector", torch.randn(1, len(weight)))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)
        with torch.no_grad():
            right = functional.normalize(self.vector @ matrix)
            left = functional.normalize(right @ matrix.T)
            if self.training:
                self.vector.copy_(left)
        return weight / (left @ (matrix @ right.T))


def _spectral(layer: nn.Conv2d | nn.Linear, spectral: bool) -> nn.Module:
    if spectral:
        nn.utils.parametrize.register_parametrization(layer, "weight", _SpectralWeight(layer.weight))
    return layer


def _upsampled(features: Tensor) -> Tensor:
    return functional.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)


class _UpBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv_1, self.conv_2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.skip = nn.Conv2d(width, width, 1)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n a h2 w2"]:
        branch = self.conv_1(_upsampled(functional.relu(self.norm_1(features))))
        branch = self.conv_2(functional.relu(self.norm_2(branch)))
        return branch + self.skip(_upsampled(features))


class _DownBlock(nn.Module):
    def __init__(self, channels: int, width: int, halves: bool, first: bool, spectral: bool) -> None:
        super().__init__()
        self.halves, self.first = halves, first
        self.conv_1 = _spectral(nn.Conv2d(channels, width, 3, padding=1), spectral)
        self.conv_2 = _spectral(nn.Conv2d(width, width, 3, padding=1), spectral)
        needed = halves or channels != width
        self.skip = _spectral(nn.Conv2d(channels, width, 1), spectral) if needed else nn.Identity()

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        branch = self.conv_1(features if self.first else functional.relu(features))
        branch = self.conv_2(functional.relu(branch))
        if not self.halves:
            return branch + self.skip(features)
        pooled = functional.avg_pool2d(branch, 2)
        if self.first:
            return pooled + self.skip(functional.avg_pool2d(features, 2))
        return pooled + functional.avg_pool2d(self.skip(features), 2)


class PeerGenerator(nn.Module):
    """Maps latents (N, Z) to images (N, C, S, S) with S = 32."""

    def __init__(self, latent_dim: int, channels: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(latent_dim, width * _SMALLEST**2)
        self.blocks = nn.Sequential(*(_UpBlock(width) for _ in range(3)))
        self.norm, self.to_image = nn.BatchNorm2d(width), nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, latents: Float[Tensor, "n z"]) -> Float[Tensor, "n c s s"]:
        features = self.blocks(self.stem(latents).unflatten(1, (-1, _SMALLEST, _SMALLEST)))
        return self.to_image(functional.relu(self.norm(features))).tanh()


class PeerDiscriminator(nn.Module):
    """Maps images (N, C, S, S) with S = 32 to logits (N, 1)."""

    def __init__(self, channels: int, width: int, spectral: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            _DownBlock(channels, width, halves=True, first=True, spectral=spectral),
            _DownBlock(width, width, halves=True, first=False, spectral=spectral),
            *(_DownBlock(width, width, halves=False, first=False, spectral=spectral) for _ in range(2)),
        )
        self.head = _spectral(nn.Linear(width, 1), spectral)

    def forward(self, images: Float[Tensor, "n c s s"]) -> Float[Tensor, "n 1"]:
        return self.head(functional.relu(self.blocks(images)).sum((2, 3)))
