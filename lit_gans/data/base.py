"""Base classes of all data sources: a source loads images or pairs of images, and these datamodules serve them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Int64, Shaped, UInt8
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.functional import resize

from lit_gans.common.annotations import converts_numbers
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.rank_zero import computed_once
from lit_gans.common.size import Size, as_size, sides, size_text
from lit_gans.data.digests import Fingerprint, digest_of_tensors, fingerprint
from lit_gans.data.loader import ResumableLoader, StepSampler

Pairs = dict[str, Shaped[Tensor, "n c h w"]]  # `input`, and `image`, its target


class ImagesInMemory(Dataset):
    """Dataset of images, labels and further tensors in memory; an index tensor gathers a full step at once.

    The n images are followed by their n mirror images: row n + i is image i flipped horizontally.

    Args:
        images: uint8, or floats in the range of the networks.
        labels: class of each image.
        mirrors: whether to serve mirror images.
        **others: further tensors with one row for each image, such as the `input` of a pair.
    """

    def __init__(
        self, images: Shaped[Tensor, "n c h w"], labels: Int64[Tensor, " n"], mirrors: bool = False, **others: Tensor
    ) -> None:
        self.images, self.labels, self.mirrors, self.others = images, labels, mirrors, others

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Images, labels and further tensors by name."""
        return {"image": self.images, "label": self.labels, **self.others}

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        if not self.mirrors:
            return {name: tensor[indices] for name, tensor in self.tensors.items()}
        rows, mirrored = indices % len(self), (indices >= len(self))[:, None, None, None]
        step = {name: tensor[rows] for name, tensor in self.tensors.items()}
        return step | {"image": torch.where(mirrored, step["image"].flip(-1), step["image"])}


class ImageData(LightningDataModule):
    """Serves the images of a source. Sources override `load`.

    Args:
        image_size: height and width of the images: one number for squares, or [height, width].
        channels: number of channels of the images.
        batch_size: number of images per process and discriminator step, before gradient accumulation.
        num_workers: number of processes that gather batches; 0 gathers in the training process, which is fastest for
            data in memory.
        seed: seed of the order of the images.

    Raises:
        RefusedInput: a value is out of range, or there are too few images for one step.
    """

    metrics: ClassVar[str] = "efficientnet_lite0"  # default option of `metrics` for these images
    num_classes: int = 0
    flip: bool = False  # whether the sampler may select mirror images
    possible_channels: tuple[int, ...] | None = (1, 3)  # None for any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = converts_numbers(cls.__init__)  # type: ignore[method-assign]

    @converts_numbers
    def __init__(
        self, image_size: Size = 32, channels: int = 1, batch_size: int = 64, num_workers: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        refuse_below(1, batch_size=batch_size)
        refuse_below(0, num_workers=num_workers)
        self.image_size = as_size(image_size)
        if self.possible_channels is not None and channels not in self.possible_channels:
            raise RefusedInput(f"channels={channels} must be {' or '.join(map(str, self.possible_channels))}.")
        self.channels = channels
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self._dataset: Any = None
        self._digests: dict[str, str] | None = None

    def __repr__(self) -> str:  # in the protocol of a measurement
        return f"{type(self).__name__}(image_size={size_text(self.image_size)}, channels={self.channels})"

    def load(self) -> tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"]]:
        """Returns all images at `image_size` and their labels (zeros without labels)."""
        raise NotImplementedError

    def make_dataset(self) -> Any:
        """Returns a dataset with a length and `labels`, to be indexed by an index tensor."""
        return ImagesInMemory(*self.load())

    @property
    def dataset(self) -> Any:
        """The images, loaded on first use."""
        if self._dataset is None:
            self._dataset = self.make_dataset()
        return self._dataset

    def setup(self, stage: str | None = None) -> None:
        self._sampler()  # raises if there are too few images, before the training
        if self.trainer is not None:  # every rank is here
            self._digests = computed_once(self.digests)

    def digests(self) -> dict[str, str]:
        """Returns digests that a checkpoint stores, and by which a resumed run recognizes its data.

        One equal digest is enough. The digest of this class is that of all images, labels and inputs in memory, in
        their order. There is none where `make_dataset` computes images for each step: a subclass may define one.
        """
        if not isinstance(self.dataset, ImagesInMemory):
            return {}
        return {"images": digest_of_tensors(**self.dataset.tensors)}

    def _known_digests(self) -> dict[str, str]:
        """Returns `digests`, computed once."""
        if self._digests is None:
            self._digests = self.digests()
        return self._digests

    def train_dataloader(self) -> ResumableLoader:
        """Returns a loader whose items are the images of whole iterations: several batches, see `_step`."""
        on_cuda = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return ResumableLoader(self.dataset, self._sampler(), self.num_workers, on_cuda, self._known_digests)

    def _sampler(self, **settings: Any) -> StepSampler:
        return StepSampler(len(self.dataset), *self._step(), self.seed, self.flip, **settings)

    def _step(self) -> tuple[int, int, int, int]:
        """Returns the batch size, the number of batches per step, the rank and the number of ranks."""
        trainer = self.trainer
        module = trainer.lightning_module if trainer else None
        num_batches = getattr(module, "batches_per_step", 1)  # of an `AdversarialModule`; others take one
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return self.batch_size, num_batches, rank, world_size

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over every image once, in the order of the source; reads none before they are needed.

        Args:
            batch_size: number of images in a batch; the last batch may be smaller.
            start, stop: reads only images from position `start` to before `stop`; None reads to the end.
        """
        rows = torch.arange(len(self.dataset))[start:stop]
        return (self.dataset[some]["image"] for some in rows.split(batch_size) if len(some))

    def real_fingerprint(self) -> Fingerprint:
        """Returns digest, number and shape of all images of `real_batches`."""
        return fingerprint(self.real_batches())

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns the class of each image, in the order of `real_batches`; zeros without labels."""
        return self.dataset.labels


def resized(images: UInt8[Tensor, "n c h w"], image_size: Size) -> UInt8[Tensor, "n c h2 w2"]:
    """Resizes images with antialiasing and rounds to uint8; returns images of the right size unchanged."""
    return resize(images, list(sides(image_size)), antialias=True)


class PairedData(ImageData):
    """Serves pairs of images. Sources override `pairs`."""

    def pairs(self, held_out: bool) -> Pairs:
        """Returns the pairs for training, or the held-out pairs."""
        raise NotImplementedError

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.channels

    def make_dataset(self) -> ImagesInMemory:
        pairs = self.pairs(held_out=False)
        return ImagesInMemory(pairs["image"], torch.zeros(len(pairs["image"]), dtype=torch.long), input=pairs["input"])

    @cached_property
    def held_out(self) -> Pairs:
        """Pairs that are excluded from training."""
        return self.pairs(held_out=True)
