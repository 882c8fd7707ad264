"""Base class of sources of image files: packs them once, then serves from the accelerator, memory or disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from lit_gans.common.cache_folder import cache_folder
from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.images import WHITE, Background, Crop, Frame
from lit_gans.data.loader import ResumableLoader
from lit_gans.data.packed.format import DamagedPacked, OnError, Packed, Source, open_packed
from lit_gans.data.packed.writer import available_cores, pack

Placement = Literal["auto", "device", "memory", "disk"]
_SHARE = 0.5  # fraction of the free memory that the images may take


class _MappedImages(ImagesInMemory):
    """Images of a packed file, which each process that unpickles the dataset maps itself."""

    def __init__(self, packed: Packed, mirrors: bool) -> None:
        super().__init__(packed.images, packed.labels, mirrors)
        self.path = packed.path

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self.path, self.mirrors)


def _mapped(path: Path, mirrors: bool) -> _MappedImages:
    return _MappedImages(open_packed(path), mirrors)


class _Rows(Dataset):
    """Row indices of a step, for images that are stored on the accelerator."""

    def __init__(self, num_images: int) -> None:
        self.num_images = num_images

    def __len__(self) -> int:
        return self.num_images

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        return {"rows": indices}


class PackedData(ImageData):
    """Serves image files of any size and format as images of one size. Sources override `source` and `identity`.

    On first use, all files are decoded, resized and written to one packed file in the cache folder. Order and flips
    depend only on (seed, epoch, image) and are the same for every placement.

    Args:
        image_size: height and width of the images.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA.
        crop, background: see `Frame`.
        flip: whether to flip half of the images horizontally, by a random bit of (seed, epoch, image).
        on_error: `raise` raises an error at the first unreadable file; `skip` skips such files and lists them.
        placement: where images are stored during training: on the accelerator (`device`), in main memory (`memory`), or
            memory-mapped from the packed file (`disk`); `auto` uses the first of these where the images fit into half
            of the free memory.
        cache: folder of packed files; null uses `LIT_GANS_CACHE`, or `lit_gans` in the user's cache if it is not set.
        batch_size, seed: see `ImageData`.
        num_workers: number of processes that gather batches; null uses 2 for `disk`, otherwise 0.

    Raises:
        RefusedInput: a value is invalid or, on first use, a file cannot be read.
    """

    possible_channels: tuple[int, ...] = (1, 3, 4)

    def __init__(
        self,
        image_size: int = 64,
        channels: int = 3,
        crop: Crop = "center",
        background: Background = WHITE,
        flip: bool = False,
        on_error: OnError = "raise",
        placement: Placement = "auto",
        cache: str | None = None,
        batch_size: int = 64,
        num_workers: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(image_size, channels, batch_size, num_workers or 0, seed)
        red, green, blue = background
        self.frame = Frame(image_size, channels, crop, (red, green, blue))
        self.flip, self.on_error, self.placement = flip, on_error, placement
        self.cache = cache_folder(cache)
        self._asked_workers = num_workers
        self._packed: Packed | None = None
        self._resident: ImagesInMemory | None = None

    # ---- what a source overrides

    def source(self) -> Source:
        """Returns the source to pack."""
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """Returns plain values that identify the content of the source; the packed file's name depends on them."""
        raise NotImplementedError

    # ---- the packed file

    @property
    def packed_path(self) -> Path:
        """Path of the packed file, which may not exist yet."""
        frame = self.frame
        key = [self.identity(), frame.image_size, frame.channels, frame.crop, list(frame.background), self.on_error]
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=8).hexdigest()
        return self.cache / f"{type(self).__name__.lower()}-{frame.image_size}-{digest}.packed"

    @property
    def packed(self) -> Packed:
        """Packed file, written on first use, and again if it is damaged."""
        if self._packed is None:
            try:
                self._packed = open_packed(self.packed_path)
            except (FileNotFoundError, NotADirectoryError, DamagedPacked):
                self._packed = self._pack()
        return self._packed

    def _pack(self) -> Packed:
        path, about = self.packed_path, {"source": type(self).__name__, "identity": self.identity()}
        pack(path, self.source(), self.frame, self.on_error, about)
        self._dataset = None  # may map a damaged file
        return open_packed(path)

    def prepare_data(self) -> None:
        self.packed  # noqa: B018 - one process per machine packs, the others use the file

    # ---- placement

    def make_dataset(self) -> ImagesInMemory:
        return _MappedImages(self.packed, self.flip)

    def placed(self, device: torch.device, num_processes: int = 1) -> str:
        """Returns where the images are stored: `device`, `memory` or `disk`.

        Args:
            device: device of the training.
            num_processes: number of training processes on this machine, each with its own copy in memory.
        """
        if self.placement != "auto":
            return self.placement
        num_bytes = self.packed.images.numel()
        if device.type == "cuda" and num_bytes <= _SHARE * torch.cuda.mem_get_info(device)[0]:
            return "device"
        return "memory" if num_bytes * num_processes <= _SHARE * _free_memory() else "disk"

    def train_dataloader(self) -> ResumableLoader:
        device, num_processes = torch.device("cpu"), 1
        if self.trainer is not None:
            device, num_processes = self.trainer.strategy.root_device, max(self.trainer.num_devices, 1)
        place = self.placed(device, num_processes)
        if place != "disk":
            self._load(device if place == "device" else torch.device("cpu"))
        workers = self._asked_workers
        if workers is None:
            workers = min(2, available_cores()) if place == "disk" else 0
        dataset: Any = {"device": _Rows(len(self.dataset)), "memory": self._resident, "disk": self.dataset}[place]
        return ResumableLoader(dataset, self._sampler(), workers, pin_memory=device.type == "cuda")

    def _load(self, device: torch.device) -> None:
        if self._resident is None or self._resident.images.device != device:
            try:
                self.packed.verify()  # all images are read now anyway
            except DamagedPacked:
                self._packed = self._pack()
            images, labels = self.packed.images.to(device, copy=True), self.packed.labels.to(device)
            self._resident = ImagesInMemory(images, labels, self.flip)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Gathers a step on the accelerator, if the images are stored there."""
        if isinstance(batch, dict) and "rows" in batch and self._resident is not None:
            return self._resident[batch["rows"]]
        return batch

    def real_batches(self, batch_size: int = 256) -> Iterator[UInt8[Tensor, "b c s s"]]:
        """Yields every image once, in the order of the source."""
        yield from self.packed.images.split(batch_size)

    def real_labels(self) -> Int64[Tensor, " n"]:
        return self.packed.labels


def _free_memory() -> float:
    """Returns the bytes of main memory that are free or can be freed; infinity if the system does not report them."""
    information = Path("/proc/meminfo")
    if not information.is_file():
        return float("inf")
    lines = dict(line.split(":", 1) for line in information.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def refuse_missing(root: Path) -> None:
    """Raises `RefusedInput` if a folder does not exist."""
    if not root.is_dir():
        raise RefusedInput(f"data.root={root}: there is no such folder; give the folder of the images.")
