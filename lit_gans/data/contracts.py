"""Protocols of data that callbacks, metrics and models use.

A datamodule implements a protocol by defining its members, without importing or inheriting anything:

    if isinstance(trainer.datamodule, Plottable):
        trainer.datamodule.plot(samples, path)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from lit_gans.common.size import Size
from lit_gans.data.digests import Fingerprint


@runtime_checkable
class RealImages(Protocol):
    """Images that can be read several times, such as those of a datamodule or a folder.

    A method `real_batches` with the further parameters `start` and `stop` lets a rank of a measurement read only its
    share, see `lit_gans.data.base.ImageData`.
    """

    def real_batches(self, batch_size: int = ...) -> Iterator[Tensor]:
        """Yields every image once, in the order of the source: uint8 (b, c, h, w)."""
        ...


@runtime_checkable
class Fingerprinted(RealImages, Protocol):
    """Images with a digest, as all sources in `lit_gans.data.sources`; packed images and streams store theirs."""

    def real_fingerprint(self) -> Fingerprint:
        """Returns digest, number and shape of all images of `real_batches`, see `lit_gans.data.digests.fingerprint`."""
        ...


@runtime_checkable
class ImageSource(RealImages, Protocol):
    """Data that serve images of one size, as all sources in `lit_gans.data.sources`.

    Attributes:
        image_size: height and width of the images: one number for squares, or both.
        channels: number of channels of the images.
        num_classes: number of classes of the labels, 0 without labels.
    """

    image_size: Size
    channels: int
    num_classes: int


@runtime_checkable
class Labeled(ImageSource, Protocol):
    """Images whose classes are known, as all sources in `lit_gans.data.sources`; without classes the labels are 0."""

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns the class of each image, in the order of `real_batches`."""
        ...


@runtime_checkable
class Plottable(Protocol):
    """Data whose samples are plotted instead of shown in a grid of images, such as points.

    Attributes:
        num_plotted: number of samples in a plot.
    """

    num_plotted: int

    def plot(self, points: Tensor, path: Path) -> None:
        """Plots generated and real samples and saves the plot."""
        ...


@runtime_checkable
class HasModes(Protocol):
    """Data with known modes.

    Attributes:
        min_samples: smallest number of samples for which a mode counts as covered.
    """

    min_samples: int

    @property
    def num_modes(self) -> int:
        """Number of modes."""
        ...

    def modes_of(self, samples: Float[Tensor, "n c h w"]) -> Int64[Tensor, " n"]:
        """Returns the mode of each sample, -1 for samples outside all modes."""
        ...


@runtime_checkable
class Paired(Protocol):
    """Paired data for image-to-image translation: `input` and its target `image`.

    In Python 3.11, `isinstance` evaluates the properties and may therefore read the held-out pairs.
    """

    @property
    def held_out(self) -> Mapping[str, UInt8[Tensor, "n c h w"]]:
        """Pairs that are excluded from training, with the keys `input` and `image`."""
        ...

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        ...


@runtime_checkable
class Unpaired(Protocol):
    """Images of two domains for unpaired translation: `input` are those of A, `image` those of B, of equal size."""

    @property
    def unseen(self) -> Mapping[str, UInt8[Tensor, "n c h w"]]:
        """Images of each domain that are excluded from training, or all; as many of each as there are."""
        ...
