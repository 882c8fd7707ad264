"""Data loader and sampler whose order depends only on (seed, epoch).

Training can therefore resume at any step, with any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.data.digests import digest_of_parts

_DATA = "data"  # key of the data digests in the state dict
_INIT_FROM = "To start a new run from its networks, use init_from=PATH."


class StepSampler(DistributedSampler):
    """Sampler that yields, for each training step, the indices of all images that this rank uses in the step.

    A step consists of `num_batches` batches of `batch_size` images per rank. Each rank takes a contiguous shard of
    each global batch. Two ranks with batch size B/2 therefore process the same images as one rank with batch size B.
    Images at the end of an epoch that do not fill a whole step are dropped. The class derives from
    `DistributedSampler`, so that Lightning keeps this sampler and sets its epoch.

    If `flip` is true, index i is replaced by i + num_images, the index of its mirror image, with probability 1/2. The
    random bit depends on (seed, epoch, image).

    If `weights` is set, an epoch still has `num_images` images. The class of each image is sampled with probabilities
    proportional to the weights. No image of a class is repeated before all images of the class have been used.

    If `window` is set, the chunks are shuffled first, and then the images within each window of consecutive images. A
    step then reads only a few chunks.

    Args:
        num_images: number of images in the dataset.
        batch_size: number of images per batch and rank.
        num_batches: number of batches per step.
        rank, world_size: rank of this process and number of processes.
        seed: random seed that determines the order.
        flip: whether to replace half of the images by their mirror images.
        window: number of images in a window; 0 shuffles all images together.
        chunks: index of the first image of each chunk.
        weights: relative weight of each class, or None.
        labels: class index of each image. Used only with `weights`.

    Attributes:
        resumed: epoch and number of steps that an interrupted run has already used in this epoch. The epoch starts
            after these steps, however often it is iterated. All other epochs start at their first step.

    Raises:
        RefusedInput: there are too few images for one step.
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
        self.epoch, self.resumed = 0, (0, 0)
        if len(self) < 1:
            largest = num_images // (num_batches * world_size)
            count = "1 image" if num_images == 1 else f"{num_images} images"
            remedy = "more images, fewer processes, or fewer batches per step (n_critic x accumulate_gradients)"
            raise RefusedInput(
                f"the data has {count}, but one step needs {self.images_per_step} (batch_size {batch_size} x"
                f" {num_batches} batches per step x {world_size} processes): use"
                f" {f'data.batch_size={largest} or less' if largest > 1 else remedy}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the order together with the epoch. They must be equal in a resumed run."""
        chunks = None  # without a window, chunks do not affect the order
        if self.window:
            chunks = f"{len(self.chunks)}, with the digest {digest_of_parts(starts=[*self.chunks])[:12]}"
        return {
            "num_images": self.num_images,
            "seed": self.seed,
            "flip": self.flip,
            "window": self.window,
            "chunks": chunks,
            "class_weights": None if self.weights is None else list(self.weights),
        }

    @property
    def images_per_step(self) -> int:
        """Number of images per step, summed over all ranks."""
        return self.batch_size * self.num_batches * self.world_size

    @property
    def start(self) -> int:
        """Number of steps at the beginning of the current epoch that are skipped; see `resumed`."""
        epoch, num_steps = self.resumed
        return num_steps if epoch == self.epoch else 0

    def __len__(self) -> int:
        return self.num_images // self.images_per_step

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(mix(self.seed, "order", self.epoch))
        order = self._order(generator)
        if self.flip:
            generator.manual_seed(mix(self.seed, "flip", self.epoch))
            order = order + self.num_images * torch.randint(2, (self.num_images,), generator=generator)[order]
        steps = order[: len(self) * self.images_per_step].view(len(self), self.num_batches, self.world_size, -1)
        for step in steps[self.start :, :, self.rank]:
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
        """Draws a random class for each position of the epoch, and fills it with the next shuffled image of the class.

        Whenever the images of a class are exhausted, they are shuffled again.
        """
        classes = torch.multinomial(weights, self.num_images, replacement=True, generator=generator)
        order = torch.empty(self.num_images, dtype=torch.long)
        for number in classes.unique().tolist():
            positions, rows = (classes == number).nonzero()[:, 0], (labels == number).nonzero()[:, 0]
            order[positions] = shuffled(rows, len(positions), generator)
        return order


def shuffled(rows: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """Returns `num` of the given rows in random order. The rows are shuffled again whenever they are exhausted."""
    rounds = range(-(-num // len(rows)))
    return torch.cat([rows[torch.randperm(len(rows), generator=generator)] for _ in rounds])[:num]


class ResumableLoader(DataLoader):
    """Data loader that yields all images of one training step at a time, and that can resume at any step.

    Its state dict contains the epoch, the number of images that were yielded in this epoch, the settings that determine
    their order, and digests of the images.

    Args:
        dataset: see `DataLoader`.
        sampler: sampler that yields the rows of each step.
        num_workers, pin_memory: see `DataLoader`.
        digests: function that returns digests of the data, called whenever a state is saved or loaded. At least one
            digest must be equal in a resumed run, unless there are none.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: StepSampler,
        num_workers: int,
        pin_memory: bool,
        digests: Callable[[], Mapping[str, str]],
    ) -> None:
        # with its own generator, seeding the workers does not advance torch's global generator
        super().__init__(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=num_workers,
            pin_memory=pin_memory,
            generator=torch.Generator(),
        )
        self._steps, self._digests = sampler, digests
        self._last = sampler.resumed  # epoch of the last yielded step, and number of steps that this epoch has used

    def state_dict(self) -> dict[str, Any]:
        sampler = self._steps
        epoch, num_steps = self._last
        num_steps = num_steps if epoch == sampler.epoch else sampler.start
        images = num_steps * sampler.images_per_step
        return {"epoch": sampler.epoch, "images": images, **sampler.settings, _DATA: dict(self._digests())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        sampler = self._steps
        state = {"chunks": sampler.settings["chunks"], **state}  # older states do not have this entry
        for name, value in sampler.settings.items():
            if state.get(name) != value:
                raise RefusedInput(
                    f"the checkpoint was trained on data with {name}={state.get(name)}, but this run has {value}: a"
                    f" resumed run must use the same data. {_INIT_FROM}"
                )
        _raise_if_other_images(state, self._digests())
        finished, num_steps = divmod(state["images"] // sampler.images_per_step, len(sampler))
        # a state that was saved after the last step of an epoch resumes at the start of the next epoch
        sampler.epoch = state["epoch"] + finished
        sampler.resumed = self._last = (sampler.epoch, num_steps)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch declares its own iterator class
        epoch, start = self._steps.epoch, self._steps.start
        for num_steps, step in enumerate(super().__iter__(), start + 1):
            self._last = epoch, num_steps
            yield step


def _raise_if_other_images(state: Mapping[str, Any], digests: Mapping[str, str]) -> None:
    """Raises `RefusedInput` if no digest of the data equals a digest in the state, unless either has no digests.

    Digests depend on the contents and order of the images, but not on their paths or names.
    """
    saved = state[_DATA]
    if saved and digests and not saved.items() & digests.items():
        raise RefusedInput(
            f"the checkpoint was trained on other images than the {state['num_images']} of this run, or on the same"
            " images with other labels or in another order, for example because files were renamed: a resumed run must"
            f" use the same data, in any location. Restore the data of the checkpoint. {_INIT_FROM}"
        )
