"""Extracts features and class logits of digits with a small classifier, whose weights are part of this package.

In a clone of the repository, `python -m tests.metrics.extractors.train_digits` trains the weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from safetensors.torch import load_file
from torch import Tensor, nn

from lit_gans.data.base import resized
from lit_gans.metrics.extractors.base import Extractor

WEIGHTS = Path(__file__).with_name("digits.safetensors")
_IMAGE_SIZE = 32


class Pool(nn.Module):
    """Computes `nn.MaxPool2d(2)` without indices, because computing the indices is slow on a CPU."""

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h2 w2"]:
        rows = torch.maximum(images[..., ::2, :], images[..., 1::2, :])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


def halving(channels_in: int, channels_out: int) -> list[nn.Module]:
    """Returns the layers of a block that halves height and width: convolution, batch norm, ReLU and pooling."""
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True), Pool()]


class DigitClassifier(nn.Module):
    """Maps grayscale images (n, 1, 32, 32) in [0, 1] to features (n, 64) and logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [*halving(1, 16), *halving(16, 32), *halving(32, 64)]
        self.layers = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.ReLU(inplace=True))
        self.head = nn.Linear(64, 10)

    def forward(self, images: Float[Tensor, "n 1 32 32"]) -> tuple[Float[Tensor, "n 64"], Float[Tensor, "n 10"]]:
        features = self.layers(images)
        return features, self.head(features)


class DigitsExtractor(Extractor):
    """Extractor for digits. Its classifier is part of this package.

    Images can have any size. Color images are converted to grayscale by averaging their channels.
    """

    name = "digits"
    num_features = 64
    num_logits = num_classes = 10
    resize = "bilinear to 32x32, antialiased, uint8, rounded"

    def __init__(self) -> None:
        super().__init__()
        self.classifier = DigitClassifier()
        self.classifier.load_state_dict(load_file(WEIGHTS))
        self.eval().requires_grad_(False)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        gray = resized(images, _IMAGE_SIZE).float().mean(1, keepdim=True) / 255
        with torch.autocast(images.device.type, enabled=False):
            return self.classifier(gray)
