"""Base classes of all data sources: datamodules that load images, or pairs of images, and serve them in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Int64, Shaped, UInt8
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.functional import resize

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.rank_zero import computed_once
from lit_gans.common.size import Size, as_size, sides, size_text
from lit_gans.data.digests import Fingerprint, digest_of_tensors, fingerprint
from lit_gans.data.loader import ResumableLoader, StepSampler

Pairs = dict[str, Shaped[Tensor, "n c h w"]]  # keys: `input` for the inputs, `image` for the targets
SHARE = 0.5  # maximum fraction of the free memory that the images can occupy


class InMemory(Dataset):
    """Base class of datasets that hold all images in tensors.

    A dataset is indexed by a tensor of row indices on the device of its tensors, which gathers all images of a training
    step at once.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def num_bytes(self) -> int:
        """Size of all tensors in bytes."""
        values = [*vars(self).values()]
        values += [part for value in values if isinstance(value, dict) for part in value.values()]
        return sum(value.nbytes for value in values if isinstance(value, Tensor))

    def to(self, device: torch.device) -> InMemory:
        """Returns a copy of the dataset whose tensors are on a device."""
        moved = copy(self)
        vars(moved).update(move_data_to_device(vars(self), device))
        return moved


class Rows(Dataset):
    """Dataset that returns row indices only, for images that are gathered on the accelerator."""

    def __init__(self, num_images: int) -> None:
        self.num_images = num_images

    def __len__(self) -> int:
        return self.num_images

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        return {"rows": indices}


def fits_on(device: torch.device, num_bytes: int) -> bool:
    """Returns whether a device is a GPU with enough free memory for the images of a training."""
    return device.type == "cuda" and num_bytes <= SHARE * torch.cuda.mem_get_info(device)[0]


class ImagesInMemory(InMemory):
    """Dataset that holds images, labels and further tensors in memory.

    Indexing the dataset with a tensor of row indices returns all images of a training step at once. If `mirrors` is
    true, n images have 2n rows: row n + i is row i, in which all images are flipped horizontally.

    Args:
        images: uint8 images, or floating-point images in [-1, 1], the value range of the networks.
        labels: class index of each image.
        mirrors: whether rows n to 2n - 1 return mirror images.
        **others: further tensors with one row per image. Tensors with four dimensions are images, such as the `input`
            of each pair.
    """

    def __init__(
        self, images: Shaped[Tensor, "n c h w"], labels: Int64[Tensor, " n"], mirrors: bool = False, **others: Tensor
    ) -> None:
        self.images, self.labels, self.mirrors, self.others = images, labels, mirrors, others

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Images, labels and further tensors, by name."""
        return {"image": self.images, "label": self.labels, **self.others}

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        if not self.mirrors:
            return {name: tensor[indices] for name, tensor in self.tensors.items()}
        rows, mirrored = indices % len(self), (indices >= len(self))[:, None, None, None]
        step = {name: tensor[rows] for name, tensor in self.tensors.items()}
        images = {name: tensor for name, tensor in step.items() if tensor.ndim == 4}  # such as both images of a pair
        return step | {name: torch.where(mirrored, image.flip(-1), image) for name, image in images.items()}


class ImageData(LightningDataModule):
    """Datamodule that serves the images of one source. Each source is a subclass that overrides `load`.

    Args:
        image_size: height and width of the images: one number for square images, or [height, width].
        channels: number of channels of the images.
        batch_size: number of images per process and discriminator step, before gradient accumulation.
        num_workers: number of worker processes that load batches. 0 loads the batches in the training process, which is
            fastest for in-memory data.
        seed: random seed that determines the order of the images.

    Raises:
        RefusedInput: a value is out of range, or there are too few images for one step.
    """

    metrics: ClassVar[str] = "efficientnet_lite0"  # default of the option `metrics` for this source
    license: ClassVar[str | None] = None  # license of the images as the Hugging Face Hub names it; None if unknown
    attribution: ClassVar[str | None] = None  # origin and terms of the images, for model cards
    num_classes: int = 0
    class_names: Sequence[str] = ()  # name of each class, by index; empty if the classes have no names
    flip: bool = False  # whether the sampler also draws mirror images
    possible_channels: tuple[int, ...] | None = (1, 3)  # None allows any number of channels

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = converts_arguments(cls.__init__)  # type: ignore[method-assign]

    @converts_arguments
    def __init__(
        self, image_size: Size = 32, channels: int = 1, batch_size: int = 64, num_workers: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        refuse_below(1, batch_size=batch_size)
        refuse_below(0, num_workers=num_workers)
        self.image_size = as_size(image_size)
        self.channels = self.checked_channels("channels", channels)
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self._dataset: Any = None
        self._digests: dict[str, str] | None = None
        self._resident: InMemory | None = None  # images on the device, from which a training step is gathered

    def checked_channels(self, name: str, channels: int) -> int:
        """Returns a number of channels. Raises `RefusedInput` with its name if the source cannot provide it."""
        if self.possible_channels is not None and channels not in self.possible_channels:
            raise RefusedInput(f"{name}={channels} must be {' or '.join(map(str, self.possible_channels))}.")
        refuse_below(1, **{name: channels})
        return channels

    def __repr__(self) -> str:  # measurement protocols record this text
        return f"{type(self).__name__}(image_size={size_text(self.image_size)}, channels={self.channels})"

    def load(self) -> tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"]]:
        """Returns all images, resized to `image_size`, and their labels. Labels are 0 if the source has no classes."""
        raise NotImplementedError

    def make_dataset(self) -> Any:
        """Returns a dataset with a length, the attribute `labels`, and indexing by a tensor of row indices.

        If `flip` is true, row n + i of n images must be the mirror image of row i. `ImagesInMemory` returns it.
        """
        return ImagesInMemory(*self.load())

    @property
    def dataset(self) -> Any:
        """Dataset of the images, created on first access."""
        if self._dataset is None:
            self._dataset = self.make_dataset()
            if isinstance(self._dataset, ImagesInMemory):
                self._dataset.mirrors = self.flip  # as the sampler of `_sampler`
        return self._dataset

    def setup(self, stage: str | None = None) -> None:
        self._sampler()  # raises an error before training starts if there are too few images
        if self.trainer is not None:  # every rank must call `computed_once`
            self._digests = computed_once(self.digests)

    def digests(self) -> dict[str, str]:
        """Returns digests of the data, by name. Checkpoints store the digests, and a resumed run compares them.

        The data are considered unchanged if at least one digest is equal. By default, in-memory data have one digest of
        all images, labels and inputs, which depends on their order. If `make_dataset` returns a dataset that computes
        images on access, the default is an empty dictionary. A subclass can override this method.
        """
        if not isinstance(self.dataset, ImagesInMemory):
            return {}
        return {"images": digest_of_tensors(**self.dataset.tensors)}

    def _known_digests(self) -> dict[str, str]:
        """Returns the result of `digests`, which is computed at most once."""
        if self._digests is None:
            self._digests = self.digests()
        return self._digests

    def train_dataloader(self) -> ResumableLoader:
        """Returns a loader that yields all images of one training iteration at a time: several batches, see `_step`.

        If the images are in memory and fit on the GPU, they are copied there, and the loader yields their rows.
        """
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        dataset, self._resident = self.dataset, None
        if isinstance(dataset, InMemory) and fits_on(device, dataset.num_bytes):
            self._resident, dataset = dataset.to(device), Rows(len(dataset))
        return ResumableLoader(dataset, self._sampler(), self.num_workers, device.type == "cuda", self._known_digests)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves the images of a step to the accelerator, or gathers them there if all images are stored there."""
        batch = super().transfer_batch_to_device(batch, device, dataloader_idx)
        return self._resident[batch["rows"]] if self._resident is not None and "rows" in batch else batch

    def _sampler(self, **settings: Any) -> StepSampler:
        return StepSampler(len(self.dataset), *self._step(), self.seed, self.flip, **settings)

    def _step(self) -> tuple[int, int, int, int]:
        """Returns the batch size, the number of batches per step, the rank and the world size."""
        trainer = self.trainer
        module = trainer.lightning_module if trainer else None
        num_batches = getattr(module, "batches_per_step", 1)  # only `AdversarialModule` has this attribute
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return self.batch_size, num_batches, rank, world_size

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over batches of all images, in the order of the source. Batches are read lazily.

        Args:
            batch_size: number of images in a batch; the last batch may be smaller.
            start, stop: reads only the images from position `start` up to, but not including, `stop`. If `stop` is
                None, reads to the end.
        """
        rows = torch.arange(len(self.dataset))[start:stop]
        return (self.dataset[batch]["image"] for batch in rows.split(batch_size) if len(batch))

    def real_fingerprint(self) -> Fingerprint:
        """Returns the digest, the number and the shape of all images of `real_batches`."""
        return fingerprint(self.real_batches())

    def real_labels(self) -> Int64[Tensor, " n"]:
        """Returns the class index of each image, in the order of `real_batches`; see `Labeled`."""
        return self.dataset.labels


def resized(images: UInt8[Tensor, "n c h w"], image_size: Size) -> UInt8[Tensor, "n c h2 w2"]:
    """Resizes images with antialiasing and rounds them to uint8. Images of size `image_size` stay unchanged."""
    return resize(images, list(sides(image_size)), antialias=True)


class PairedData(ImageData):
    """Datamodule that serves pairs of images. Each source is a subclass that overrides `pairs`."""

    def pairs(self, held_out: bool) -> Pairs:
        """Returns the held-out pairs if `held_out` is true, otherwise the training pairs."""
        raise NotImplementedError

    @property
    def input_channels(self) -> int:
        """Number of channels of the input images."""
        return self.channels

    def make_dataset(self) -> ImagesInMemory:
        pairs = self.pairs(held_out=False)
        return ImagesInMemory(pairs["image"], torch.zeros(len(pairs["image"]), dtype=torch.long), input=pairs["input"])

    @cached_property
    def held_out(self) -> Pairs:
        """Held-out pairs, which are excluded from training."""
        return self.pairs(held_out=True)
