"""Extracts features and attributes of cartoon faces with a small network, whose weights are part of this package.

In a clone of the repository, `python -m tests.metrics.extractors.train_avatars` trains the weights.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int64, UInt8
from safetensors.torch import load_file
from torch import Tensor, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.data.base import resized
from lit_gans.data.faces import ATTRIBUTES, Label
from lit_gans.metrics.extractors.base import Extractor, in_color
from lit_gans.metrics.extractors.digits import halving

WEIGHTS = Path(__file__).with_name("avatars.safetensors")
NUM_FEATURES = 128
_IMAGE_SIZE = 64
_NUM_OPTIONS = {name: len(attribute.options) for name, attribute in ATTRIBUTES.items()}


class AttributeReader(nn.Module):
    """Maps color images (n, 3, 64, 64) in [0, 1] to features (n, 128) and to logits for the options of all attributes.

    The logits have shape (n, total number of options). They are the concatenated logits of all attributes, in the order
    of `ATTRIBUTES`.
    """

    def __init__(self) -> None:
        super().__init__()
        blocks = [*halving(3, 24), *halving(24, 48), *halving(48, 96), *halving(96, 64)]
        flat = [nn.Flatten(), nn.Linear(64 * 4 * 4, NUM_FEATURES), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*blocks, *flat)
        self.head = nn.Linear(NUM_FEATURES, sum(_NUM_OPTIONS.values()))

    def forward(self, images: Float[Tensor, "n 3 64 64"]) -> tuple[Float[Tensor, "n 128"], Float[Tensor, "n k"]]:
        features = self.layers(images)
        return features, self.head(features)


def by_attribute(logits: Float[Tensor, "n k"]) -> dict[Label, Float[Tensor, "n o"]]:
    """Splits the logits of all options into the logits of each attribute's options."""
    return dict(zip(ATTRIBUTES, logits.split(list(_NUM_OPTIONS.values()), 1), strict=True))


@cache
def trained_reader() -> AttributeReader:
    """Returns the network with the weights of this package."""
    reader = AttributeReader()
    reader.load_state_dict(load_file(WEIGHTS))  # converts the weights to float32, because they are stored in float16
    return reader.eval().requires_grad_(False)


@torch.no_grad()
def attributes_of_features(features: Float[Tensor, "n 128"]) -> dict[Label, Int64[Tensor, " n"]]:
    """Predicts the option index of each attribute from features of `AvatarsExtractor`. Results are on the CPU."""
    logits = trained_reader().head(features.float().cpu())
    return {name: options.argmax(1) for name, options in by_attribute(logits).items()}


class AvatarsExtractor(Extractor):
    """Extractor for cartoon faces (see `Avatars`). Its network is part of this package. Images can have any size.

    The network reads attributes less accurately in grayscale, smaller or elongated images, or in front of black.

    Args:
        label: attribute whose options are the classes of the data, so that class scores can be measured. If None, the
            extractor returns only features.

    Raises:
        RefusedInput: there is no such attribute.
    """

    name = "avatars"
    num_features = NUM_FEATURES
    resize = "bilinear to 64x64, antialiased, uint8, rounded"

    @converts_arguments
    def __init__(self, label: Label | None = None) -> None:
        super().__init__()
        self.label: Label | None = label
        self.class_names = () if label is None else tuple(ATTRIBUTES[label].options)
        self.num_logits = self.num_classes = len(self.class_names)
        self.reader = deepcopy(trained_reader())  # a copy, because the network moves to the device of the images

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        color = resized(in_color(images), _IMAGE_SIZE).float() / 255
        with torch.autocast(images.device.type, enabled=False):
            features, logits = self.reader(color)
        return features, logits[:, :0] if self.label is None else by_attribute(logits)[self.label]
