"""Base class of sources with images of two domains, A and B, which are shuffled independently of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int64, Shaped, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.data.loader import StepSampler, shuffled
from lit_gans.data.packed.datamodule import TranslationData, in_8_bits
from lit_gans.data.packed.format import ROWS, Packed, Source


class Joined(Source):
    """Concatenation of several sources. The label of an image is the index of its source.

    Args:
        parts: sources to concatenate.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        self._rows = [(part, row) for part in parts for row in range(len(part))]
        self.labels = [number for number, part in enumerate(parts) for _ in range(len(part))]
        self.left_out = [line for part in parts for line in part.left_out]

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, index: int) -> str:
        part, row = self._rows[index]
        return part.name(row)

    def picture(self, index: int, notes: list[str]) -> Any:
        part, row = self._rows[index]
        return part.picture(row, notes)

    def domain(self, index: int) -> str:
        return "AB"[self.label(index)]


class UnpairedSampler(StepSampler):
    """Sampler that yields the rows of each step on this rank: first the rows of the images, then of the inputs.

    A step has as many inputs as images. An epoch visits each image of the larger domain once. The smaller domain is
    reshuffled and repeated.

    Args:
        images: rows of the domain that serves `image`.
        inputs: rows of the domain that serves `input`.
        num_rows: number of rows in both domains. Row i + num_rows is the mirror image of row i.
        step: batch size, number of batches per step, rank and world size; see `StepSampler`.
        seed: random seed that determines the order.
        mirrors: whether to replace each row by its mirror image with probability 1/2.
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
        self._base = 2 * num_rows  # one integer encodes two rows: image row + base * input row
        super().__init__(max(len(images), len(inputs)), *step, seed)

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"domains": [len(self.images), len(self.inputs)], "flip": self.mirrors}

    def __iter__(self) -> Iterator[Tensor]:
        for step in super().__iter__():
            yield torch.cat([step % self._base, step // self._base])

    def _order(self, generator: torch.Generator) -> Tensor:
        images, inputs = (self._shuffled(domain, generator) for domain in (self.images, self.inputs))
        return images + self._base * inputs

    def _shuffled(self, domain: Tensor, generator: torch.Generator) -> Tensor:
        rows = shuffled(domain, self.num_images, generator)
        mirrored = torch.randint(2, rows.shape, generator=generator)
        return rows + self.num_rows * mirrored if self.mirrors else rows


class UnpairedData(TranslationData):
    """Datamodule that serves images of two domains: `input` images from domain A, and `image` images from domain B.

    Subclasses override `domains` and `identity`.

    Args:
        direction: `a_to_b` translates from A to B; `b_to_a` exchanges A and B.
        **kwargs: see `TranslationData`.
    """

    def __init__(self, direction: Literal["a_to_b", "b_to_a"] = "a_to_b", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.class_weights is not None:
            self.weights_of_classes()  # raises an error, because the images have no classes
        self.direction = direction

    def domains(self, held_out: bool = False) -> tuple[Source, Source]:
        """Returns the sources of domains A and B.

        If `held_out` is true, the sources contain the held-out images, or all images if none are held out. Otherwise,
        they contain the training images.
        """
        raise NotImplementedError

    def source(self, held_out: bool = False) -> Source:
        return Joined(self.domains(held_out))

    def exchange_domains(self) -> None:
        """Exchanges domains A and B."""
        self.direction = "b_to_a" if self.direction == "a_to_b" else "a_to_b"

    @property
    def unseen(self) -> dict[str, Shaped[Tensor, "_ c h w"]]:
        """Held-out `input` and `image` images, or all images if none are held out."""
        return {name: self.packed_held_out.images[rows] for name, rows in self._rows(self.packed_held_out).items()}

    def _rows(self, packed: Packed) -> dict[str, Int64[Tensor, " n"]]:
        """Returns the rows of packed images that belong to each domain.

        Raises:
            RefusedInput: no image of a domain could be read.
        """
        a, b = ((packed.labels == number).nonzero()[:, 0] for number in (0, 1))
        for domain, rows in (("A", a), ("B", b)):
            if not len(rows):
                raise RefusedInput(
                    f"none of the images of domain {domain} can be read: {packed.path / ROWS} lists the reasons."
                )
        return {"input": a, "image": b} if self.direction == "a_to_b" else {"input": b, "image": a}

    def _sampler(self, **settings: Any) -> StepSampler:
        rows = self._rows(self.packed)
        num_rows = len(self.packed.labels)
        return UnpairedSampler(rows["image"], rows["input"], num_rows, self._step(), self.seed, self.flip)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Splits the images of a step into both domains."""
        image, inputs = batch["image"].chunk(2)
        return {"image": image, "input": inputs}

    def arrangement(self) -> dict[str, Any]:
        return {"direction": self.direction}

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over the 8-bit training images of the domain that serves `image`; see `ImageData`."""
        rows = self._rows(self.packed)["image"][start:stop]
        return (in_8_bits(self.packed.images[batch]) for batch in rows.split(batch_size) if len(batch))

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns a label of 0 for each image of `real_batches`, because the images have no classes."""
        return torch.zeros_like(self._rows(self.packed)["image"])


class TruePairs(UnpairedData):
    """Datamodule of two domains whose held-out images form true pairs, so that translations have a ground truth."""

    possible_channels = (1, 3)

    @property
    def input_channels(self) -> int:
        """Number of channels of the input images."""
        return self.channels

    @property
    def held_out(self) -> dict[str, UInt8[Tensor, "n c h w"]]:
        """Held-out true pairs, which are excluded from training, with the keys `input` and `image`."""
        return self.unseen
