"""Protocols that callbacks, metrics and models use to access the data of a datamodule.

A datamodule implements a protocol by defining the protocol's members, without inheriting from it. Callers check this:

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
    """Images that can be read repeatedly, such as the images of a datamodule or of a folder.

    If `real_batches` also has the parameters `start` and `stop`, each rank of a distributed measurement reads only its
    share of the images; see `lit_gans.data.base.ImageData`.
    """

    def real_batches(self, batch_size: int = ...) -> Iterator[Tensor]:
        """Yields every image once, in the order of the source, in uint8 batches of shape (b, c, h, w)."""
        ...


@runtime_checkable
class Fingerprinted(RealImages, Protocol):
    """Images that provide a digest of their contents. All sources in `lit_gans.data.sources` implement this protocol.

    Packed images and streams store their digest instead of computing it again.
    """

    def real_fingerprint(self) -> Fingerprint:
        """Returns the digest, the number and the shape of all images of `real_batches`.

        See `lit_gans.data.digests.fingerprint`.
        """
        ...


@runtime_checkable
class ImageSource(RealImages, Protocol):
    """Images of a single size. All sources in `lit_gans.data.sources` implement this protocol.

    Attributes:
        image_size: height and width of the images: one number for square images, or (height, width).
        channels: number of channels of the images.
        num_classes: number of classes; 0 if the images have no labels.
    """

    image_size: Size
    channels: int
    num_classes: int


@runtime_checkable
class Labeled(ImageSource, Protocol):
    """Images with labels. All sources in `lit_gans.data.sources` implement this protocol.

    If a source has no classes (`num_classes` is 0), models and metrics do not use its labels. They need not be 0:
    the label of a point is the index of its mode.
    """

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns the class index of each image, in the order of `real_batches`."""
        ...


@runtime_checkable
class Plottable(Protocol):
    """Data whose samples are shown in a plot instead of an image grid, such as points in the plane.

    Attributes:
        num_plotted: number of generated samples in a plot.
    """

    num_plotted: int

    def plot(self, points: Tensor, path: Path) -> None:
        """Plots generated samples together with real samples, and saves the plot to `path`."""
        ...


@runtime_checkable
class HasModes(Protocol):
    """Data whose distribution has known modes.

    Attributes:
        min_samples: minimum number of generated samples in a covered mode.
    """

    min_samples: int

    @property
    def num_modes(self) -> int:
        """Number of modes of the distribution."""
        ...

    def modes_of(self, samples: Float[Tensor, "n c h w"]) -> Int64[Tensor, " n"]:
        """Returns the index of each sample's mode, or -1 for samples that belong to no mode."""
        ...


@runtime_checkable
class PairedSource(Protocol):
    """Paired data for image-to-image translation: each pair has an `input` and its target, `image`.

    In Python 3.11, `isinstance` evaluates the properties and might therefore read the held-out pairs.
    """

    @property
    def held_out(self) -> Mapping[str, UInt8[Tensor, "n c h w"]]:
        """Held-out pairs, which are excluded from training, with the keys `input` and `image`."""
        ...

    @property
    def input_channels(self) -> int:
        """Number of channels of the input images."""
        ...


@runtime_checkable
class UnpairedSource(Protocol):
    """Images of two domains for unpaired translation: `input` contains domain A, and `image` contains domain B.

    The images of both domains have the same size.
    """

    @property
    def unseen(self) -> Mapping[str, UInt8[Tensor, "n c h w"]]:
        """Held-out images of each domain, or all images if none are held out. The numbers of images can differ."""
        ...
