"""The order of the images as a function of (seed, epoch): resumable at any batch, with any number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix


class StepSampler(DistributedSampler):
    """Yields the image indices of each step of this rank.

    A step holds `num_batches` batches of `batch_size` for each rank. Of each global batch a rank takes its contiguous
    part, so that 2 ranks x B/2 see what 1 rank x B sees; what is left over at the end of an epoch is dropped. It is a
    `DistributedSampler` so that Lightning keeps it and tells it the epoch.

    With `flip`, a coin of (seed, epoch, image) makes row i to i + num_images: the mirror image of i.

    With `window` the order is that of images which come in chunks: the chunks are shuffled, then the images among each
    `window` that follow one another. So no step needs many chunks.

    Args:
        num_images: of the data.
        batch_size, num_batches: of a step, see above.
        rank, world_size: of this process and of all.
        seed: of the order.
        flip: see above.
        window: see above; 0 shuffles all images.
        chunks: the first image of each chunk.

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
    ) -> None:
        self.num_images, self.batch_size, self.num_batches = num_images, batch_size, num_batches
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.flip, self.window, self.chunks = flip, window, chunks
        self.epoch, self.start = 0, 0
        if len(self) < 1:
            raise RefusedInput(
                f"the data has {num_images} images, one step needs {self.images_per_step} (batch_size {batch_size} x"
                f" {num_batches} batches a step x {world_size} processes): use a smaller data.batch_size."
            )

    @property
    def images_per_step(self) -> int:
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
        if not self.window:
            return torch.randperm(self.num_images, generator=generator)
        chunks = torch.arange(self.num_images).tensor_split(list(self.chunks)[1:])
        rows = torch.cat([chunks[index] for index in torch.randperm(len(chunks), generator=generator).tolist()])
        parts = rows.split(self.window)
        return torch.cat([part[torch.randperm(len(part), generator=generator)] for part in parts])


class ResumableLoader(DataLoader):
    """A loader of whole steps whose state is how many steps of the epoch it has yielded."""

    def __init__(self, dataset: Dataset, sampler: StepSampler, num_workers: int, pin_memory: bool) -> None:
        # the private generator keeps the workers' seeds from being drawn out of the training's random numbers
        super().__init__(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=num_workers,
            pin_memory=pin_memory,
            generator=torch.Generator(),
        )
        self._yielded = 0

    def state_dict(self) -> dict[str, Any]:
        sampler: Any = self.sampler
        return {
            "epoch": sampler.epoch,
            "images": self._yielded * sampler.images_per_step,
            "num_images": sampler.num_images,
            "seed": sampler.seed,
            "flip": sampler.flip,
            "window": sampler.window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        sampler: Any = self.sampler
        for name in ("num_images", "seed", "flip", "window"):
            if state[name] != getattr(sampler, name):
                raise RefusedInput(
                    f"the checkpoint was trained on data with {name}={state[name]}, this run has"
                    f" {getattr(sampler, name)}: a resumed run must see the same data. To start anew from its networks,"
                    " use init_from=PATH."
                )
        finished, sampler.start = divmod(state["images"] // sampler.images_per_step, len(sampler))
        sampler.epoch = state["epoch"] + finished  # saved after an epoch's last step, a run goes on with the next

    def __iter__(self) -> Iterator[Any]:
        self._yielded = self.sampler.start
        for step in super().__iter__():
            self._yielded += 1
            yield step
