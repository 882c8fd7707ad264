"""Protocols between data and those who use them: what callbacks, metrics and models ask of data, and data of modules.

A datamodule implements a protocol by having its members; it need not import or inherit anything:

    if isinstance(trainer.datamodule, Plottable):
        trainer.datamodule.plot(samples, path)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor


@runtime_checkable
class ImageSource(Protocol):
    """Data that serve images of one size, as every source in `lit_gans.data.sources` does.

    Attributes:
        image_size: height and width of the images.
        channels: of the images.
        num_classes: number of classes of the labels, 0 without labels.
    """

    image_size: int
    channels: int
    num_classes: int

    def real_batches(self, batch_size: int = ...) -> Iterator[Tensor]:
        """Yields every image once, in the order of the source: uint8 (b, c, s, s)."""
        ...


@runtime_checkable
class Plottable(Protocol):
    """Data whose samples are drawn as a plot instead of a grid of images, such as points.

    Attributes:
        num_plotted: number of samples in a plot.
    """

    num_plotted: int

    def plot(self, points: Tensor, path: Path) -> None:
        """Draws generated samples beside real ones and saves the plot."""
        ...


@runtime_checkable
class HasModes(Protocol):
    """Data whose modes are known and can be counted.

    Attributes:
        min_samples: number of samples in a mode from which on it counts as covered.
    """

    min_samples: int

    @property
    def num_modes(self) -> int:
        """Number of modes."""
        ...

    def modes_of(self, samples: Float[Tensor, "n c h w"]) -> Int64[Tensor, " n"]:
        """Returns the mode of each sample, -1 for a sample that belongs to none."""
        ...


@runtime_checkable
class NeedsClassifier(Protocol):
    """Data with modes that only a classifier of digits can tell; `modes_of` works once it has one."""

    def set_classifier(self, classifier: Classifier) -> None:
        """Sets the classifier that `modes_of` uses."""
        ...


@runtime_checkable
class Classifier(Protocol):
    """Classifier of images of digits, as `lit_gans.metrics.extractors.digits.DigitsExtractor`."""

    def __call__(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Tensor, Float[Tensor, "n k"]]:
        """Returns features and logits of images."""
        ...

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the classifier on a device."""
        ...


@runtime_checkable
class TrainsInBatches(Protocol):
    """Modules that train on several batches in a step, such as one for each update of a critic."""

    @property
    def batches_per_step(self) -> int:
        """Number of batches that a step takes from the loader."""
        ...


@runtime_checkable
class Paired(Protocol):
    """Data of pairs for image-to-image translation: `input` and the `image` that it shall become.

    Python 3.11 evaluates the properties to check `isinstance`, so that it may read the held-out pairs.
    """

    @property
    def held_out(self) -> Mapping[str, UInt8[Tensor, "n c s s"]]:
        """The pairs that never train, by the names `input` and `image`."""
        ...

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        ...
