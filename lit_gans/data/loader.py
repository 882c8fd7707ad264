"""Loader and sampler whose order depends only on (seed, epoch): resumable at any batch, with any number of workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import rank_zero_only
from lit_gans.common.noise import mix

logger = logging.getLogger(__name__)

_DATA = "data"  # key of the digests in the state
_INIT_FROM = "To start a new run from its networks, use init_from=PATH."


class StepSampler(DistributedSampler):
    """Yields the image indices of each step of this rank.

    A step consists of `num_batches` batches of `batch_size` images per rank. Each rank takes a contiguous shard of
    each global batch, so that 2 ranks x B/2 see the same images as 1 rank x B; the remainder of an epoch is dropped.
    Deriving from `DistributedSampler` makes Lightning keep this sampler and set its epoch.

    With `flip`, a random bit of (seed, epoch, image) replaces row i by i + num_images, the mirror image of i.

    With `weights`, an epoch has as many images as before, of which each is of a class with the probability of the
    weights; no image of a class comes again before all others of it.

    With `window`, chunks are shuffled first, then the images within each window of consecutive images, so that a step
    reads few chunks.

    Args:
        num_images: number of images in the data.
        batch_size, num_batches: see above.
        rank, world_size: rank of this process and number of processes.
        seed: seed of the order.
        flip: see above.
        window: number of images in a window; 0 shuffles all images.
        chunks: index of the first image of each chunk.
        weights: weight of each class, relative to the others, or None.
        labels: class of each image, for `weights`.

    Raises:
        RefusedInput: too few images for one step.
    """

    def __init__(
        self,
        num_images: int,
        batch_size: int,
        num_batches: int,
        rank: int,
        world_size: int,
        seed: int,
        flip: bool = False,
        window: int = 0,
        chunks: Sequence[int] = (0,),
        weights: Sequence[float] | None = None,
        labels: Tensor | None = None,
    ) -> None:
        self.num_images, self.batch_size, self.num_batches = num_images, batch_size, num_batches
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.flip, self.window, self.chunks = flip, window, chunks
        self.weights, self.labels = weights, labels
        self.epoch, self.start = 0, 0
        if len(self) < 1:
            largest = num_images // (num_batches * world_size)
            pictures = "1 image" if num_images == 1 else f"{num_images} images"
            others = "more images, fewer processes, or fewer batches per step (n_critic x accumulate_gradients)"
            raise RefusedInput(
                f"the data has {pictures}, one step needs {self.images_per_step} (batch_size {batch_size} x"
                f" {num_batches} batches per step x {world_size} processes): use"
                f" {f'data.batch_size={largest} or less' if largest > 1 else others}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings, besides the epoch, that determine the order and must be equal in a resumed run."""
        settings = {"num_images": self.num_images, "seed": self.seed, "flip": self.flip, "window": self.window}
        return settings | {"class_weights": None if self.weights is None else list(self.weights)}

    @property
    def images_per_step(self) -> int:
        """Number of images per step on all ranks."""
        return self.batch_size * self.num_batches * self.world_size

    def __len__(self) -> int:
        return self.num_images // self.images_per_step

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(mix(self.seed, "order", self.epoch))
        order = self._order(generator)
        if self.flip:
            generator.manual_seed(mix(self.seed, "flip", self.epoch))
            order = order + self.num_images * torch.randint(2, (self.num_images,), generator=generator)[order]
        steps = order[: len(self) * self.images_per_step].view(len(self), self.num_batches, self.world_size, -1)
        start, self.start = self.start, 0
        for step in steps[start:, :, self.rank]:
            yield step.flatten()

    def _order(self, generator: torch.Generator) -> Tensor:
        if self.weights is not None and self.labels is not None:
            return self._weighted(torch.tensor(self.weights), self.labels, generator)
        if not self.window:
            return torch.randperm(self.num_images, generator=generator)
        chunks = torch.arange(self.num_images).tensor_split(list(self.chunks)[1:])
        rows = torch.cat([chunks[index] for index in torch.randperm(len(chunks), generator=generator).tolist()])
        windows = rows.split(self.window)
        return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in windows])

    def _weighted(self, weights: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Returns an image of a random class for each place, from shuffled images of the class, again and again."""
        classes = torch.multinomial(weights, self.num_images, replacement=True, generator=generator)
        order = torch.empty(self.num_images, dtype=torch.long)
        for number in classes.unique().tolist():
            places, rows = (classes == number).nonzero()[:, 0], (labels == number).nonzero()[:, 0]
            order[places] = shuffled(rows, len(places), generator)
        return order


def shuffled(rows: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """Returns as many rows as asked for: all of them in a random order, and in another one, again and again."""
    rounds = range(-(-num // len(rows)))
    return torch.cat([rows[torch.randperm(len(rows), generator=generator)] for _ in rounds])[:num]


class ResumableLoader(DataLoader):
    """Loader of full steps, whose state is the epoch, the number of its images that were yielded, what their order
    depends on, and digests of the images.

    Args:
        dataset: see `DataLoader`.
        sampler: rows of each step.
        num_workers, pin_memory: see `DataLoader`.
        digests: function that returns digests of the data, of which one must be equal in a resumed run; called when a
            state is saved or loaded. None neither stores nor compares any.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: StepSampler,
        num_workers: int,
        pin_memory: bool,
        digests: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        # a private generator, so that seeding the workers does not change the random numbers of the training
        super().__init__(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=num_workers,
            pin_memory=pin_memory,
            generator=torch.Generator(),
        )
        self._steps, self._yielded, self._digests = sampler, 0, digests

    def state_dict(self) -> dict[str, Any]:
        sampler = self._steps
        state = {"epoch": sampler.epoch, "images": self._yielded * sampler.images_per_step, **sampler.settings}
        return state if self._digests is None else state | {_DATA: dict(self._digests())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        sampler = self._steps
        for name, value in sampler.settings.items():
            if state.get(name) != value:
                raise RefusedInput(
                    f"the checkpoint was trained on data with {name}={state.get(name)}, this run has {value}: a resumed"
                    f" run must see the same data. {_INIT_FROM}"
                )
        if self._digests is not None:
            _refuse_other_images(state, self._digests())
        finished, sampler.start = divmod(state["images"] // sampler.images_per_step, len(sampler))
        sampler.epoch = state["epoch"] + finished  # saved after an epoch's last step, a run continues with the next

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator, where torch declares its own iterator
        self._yielded = self._steps.start
        for step in super().__iter__():
            self._yielded += 1
            yield step


def _refuse_other_images(state: Mapping[str, Any], ours: Mapping[str, str]) -> None:
    """Raises `RefusedInput` if no digest of the data is that of the state; warns if the state has none.

    Digests depend on contents and their order, neither on paths nor on names.
    """
    theirs = state.get(_DATA)
    if theirs is None:
        _warn_of_no_digest()
    elif theirs and ours and not theirs.items() & ours.items():
        raise RefusedInput(
            f"the checkpoint was trained on other images than the {state['num_images']} of this run, or on the same"
            " images in another order, such as that of other file names, or with other labels: a resumed run must see"
            f" the same data, wherever they lie. Restore the data of the checkpoint. {_INIT_FROM}"
        )


@rank_zero_only
def _warn_of_no_digest() -> None:
    logger.warning(
        "The checkpoint has no digest of its images, since an earlier version of lit_gans wrote it: it is not checked"
        " whether this run has the same images. Its next checkpoints have one."
    )
