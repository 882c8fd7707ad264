"""Base class of sources of images of two domains, A and B, which are shuffled independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int64, Shaped, UInt8
from torch import Tensor

from lit_gans.data.loader import StepSampler, shuffled
from lit_gans.data.packed.datamodule import TranslationData, in_8_bits
from lit_gans.data.packed.format import Packed, Source


class Joined(Source):
    """Pictures of several sources, one source after the other, with the number of the source as the label.

    Args:
        parts: the sources.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        self._places = [(part, row) for part in parts for row in range(len(part))]
        self.labels = [number for number, part in enumerate(parts) for _ in range(len(part))]
        self.left_out = [line for part in parts for line in part.left_out]

    def __len__(self) -> int:
        return len(self._places)

    def name(self, index: int) -> str:
        part, row = self._places[index]
        return part.name(row)

    def picture(self, index: int, notes: list[str]) -> Any:
        part, row = self._places[index]
        return part.picture(row, notes)

    def domain(self, index: int) -> str:
        return "AB"[self.label(index)]


class UnpairedSampler(StepSampler):
    """Yields the rows of each step of this rank: those of the images, then as many of the inputs.

    An epoch has as many of each as the larger domain has; the other one is shuffled again where it ends.

    Args:
        images: rows of the images.
        inputs: rows of the inputs.
        num_rows: number of all rows, of which row i + num_rows is the mirror image of row i.
        step: batch size, number of batches per step, rank and number of ranks, see `StepSampler`.
        seed: seed of the order.
        mirrors: whether to replace rows by their mirror images, by a random bit for each.
    """

    def __init__(
        self,
        images: Int64[Tensor, " n"],
        inputs: Int64[Tensor, " m"],
        num_rows: int,
        step: tuple[int, int, int, int],
        seed: int,
        mirrors: bool,
    ) -> None:
        self.images, self.inputs, self.num_rows, self.mirrors = images, inputs, num_rows, mirrors
        self._base = 2 * num_rows  # one number stands for both rows: that of the image + base * that of the input
        super().__init__(max(len(images), len(inputs)), *step, seed)

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"domains": [len(self.images), len(self.inputs)], "flip": self.mirrors}

    def __iter__(self) -> Iterator[Tensor]:
        for step in super().__iter__():
            yield torch.cat([step % self._base, step // self._base])

    def _order(self, generator: torch.Generator) -> Tensor:
        images, inputs = (self._rows(own, generator) for own in (self.images, self.inputs))
        return images + self._base * inputs

    def _rows(self, own: Tensor, generator: torch.Generator) -> Tensor:
        rows = shuffled(own, self.num_images, generator)
        mirrored = torch.randint(2, rows.shape, generator=generator)
        return rows + self.num_rows * mirrored if self.mirrors else rows


class UnpairedData(TranslationData):
    """Serves images of two domains: `input` is of A, `image` of B. Subclasses override `domains` and `identity`.

    Args:
        direction: `b_to_a` exchanges A and B.
        **kwargs: see `TranslationData`.
    """

    def __init__(self, direction: Literal["a_to_b", "b_to_a"] = "a_to_b", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.class_weights is not None:
            self.weights_of_classes()  # raises, since there are none
        self.direction = direction

    def domains(self, held_out: bool = False) -> tuple[Source, Source]:
        """Returns A and B for training, or what is excluded from it; all if nothing is."""
        raise NotImplementedError

    def source(self, held_out: bool = False) -> Source:
        return Joined(self.domains(held_out))

    def exchange_domains(self) -> None:
        """Exchanges A and B."""
        self.direction = "b_to_a" if self.direction == "a_to_b" else "a_to_b"

    @property
    def unseen(self) -> dict[str, Shaped[Tensor, "_ c h w"]]:
        """Images of each domain that are excluded from training, or all if none are: `input` and `image`."""
        return {name: self.packed_held_out.images[rows] for name, rows in self._rows(self.packed_held_out).items()}

    def _rows(self, packed: Packed) -> dict[str, Int64[Tensor, " n"]]:
        """Returns the rows of each domain in packed images."""
        a, b = ((packed.labels == number).nonzero()[:, 0] for number in (0, 1))
        return {"input": a, "image": b} if self.direction == "a_to_b" else {"input": b, "image": a}

    def _sampler(self, **settings: Any) -> StepSampler:
        rows = self._rows(self.packed)
        num_rows = len(self.packed.labels)
        return UnpairedSampler(rows["image"], rows["input"], num_rows, self._step(), self.seed, self.flip)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Gathers a step on the accelerator, if the images are stored there, and splits it into both domains."""
        image, given = super().on_after_batch_transfer(batch, dataloader_idx)["image"].chunk(2)
        return {"image": image, "input": given}

    def arrangement(self) -> dict[str, Any]:
        return {"direction": self.direction}

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over the training images that `image` is taken from, with 8 bits; see `ImageData`."""
        rows = self._rows(self.packed)["image"][start:stop]
        return (in_8_bits(self.packed.images[some]) for some in rows.split(batch_size) if len(some))

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns zeros, since the images have no classes; as many as `real_batches` has images."""
        return torch.zeros_like(self._rows(self.packed)["image"])


class TruePairs(UnpairedData):
    """Serves images of two domains whose held-out images are true pairs, which translations can be compared with."""

    possible_channels = (1, 3)

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.channels

    @property
    def held_out(self) -> dict[str, UInt8[Tensor, "n c h w"]]:
        """True pairs that are excluded from training: `input` and `image`."""
        return self.unseen
