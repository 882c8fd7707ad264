"""Base class of packed pairs for image-to-image translation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from lit_gans.data.images import Frame
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.paired import Pairs


class _PairFrame(Frame):
    """Converts the two sides of a pair to one image with twice the channels."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return 2 * self.channels, self.image_size, self.image_size

    # the sources of pairs return both sides
    def fit(  # type: ignore[override]
        self, picture: tuple[Image.Image, ...], name: str
    ) -> tuple[UInt8[np.ndarray, "c2 s s"], list[str]]:
        sides, notes = zip(*(super(_PairFrame, self).fit(side, name) for side in picture), strict=True)
        return np.concatenate(sides), sorted({note for said in notes for note in said})


class PackedPairs(PackedData):
    """Packs pairs once, each as one image with twice the channels. Subclasses override `source`, whose pictures are
    tuples of an input and its target, `identity` and `excluded`.

    Args:
        **kwargs: see `PackedData`.
    """

    metrics = "none"  # translations are compared with their targets

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        frame = self.frame
        self.frame = _PairFrame(frame.image_size, frame.channels, frame.crop, frame.background)

    def excluded(self) -> PackedPairs:
        """Returns a copy that serves the pairs which are excluded from training, or all if none are."""
        raise NotImplementedError

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.channels

    @cached_property
    def held_out(self) -> Pairs:
        """Pairs that are excluded from training; all pairs if none are held out."""
        others = self.excluded()
        others._packed = None
        return others.halves(others.packed.images)

    def halves(self, images: UInt8[Tensor, "b c2 s s"]) -> Pairs:
        """Splits packed pairs into inputs and targets."""
        return dict(zip(("input", "image"), images.chunk(2, dim=1), strict=True))

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Gathers a step on the accelerator, if the images are stored there, and splits the pairs."""
        batch = super().on_after_batch_transfer(batch, dataloader_idx)
        return batch | self.halves(batch["image"]) if isinstance(batch, dict) and "input" not in batch else batch

    def real_batches(self, batch_size: int = 256) -> Iterator[UInt8[Tensor, "b c s s"]]:
        """Yields the target of every training pair."""
        return (self.halves(images)["image"] for images in super().real_batches(batch_size))
