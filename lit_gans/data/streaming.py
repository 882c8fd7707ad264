"""Images streamed from object storage by LitData: what does not fit on the disks of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.packed import PackedData
from lit_gans.errors import RefusedInput, install_command


class _Streamed(Dataset):
    """Rows of a stream in any order; every process that reads opens it anew.

    Args:
        root: address of the stream.
        cache: folder for what was fetched; null is LitData's own.
        mirrors: whether mirror images are asked for, as in `ImagesInMemory`.
    """

    def __init__(self, root: str, cache: str | None, mirrors: bool) -> None:
        self.root, self.cache, self.mirrors = root, cache, mirrors
        self._opened: tuple[int, Any] | None = None
        first = self._stream[0]  # fetches the index, too
        self.shape, self.num = first["image"].shape, len(self._stream.cache)

    @property
    def _stream(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            from litdata import StreamingDataset

            self._opened = os.getpid(), StreamingDataset(self.root, cache_dir=self.cache)
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        # each chunk is opened once in a step, whatever the order
        rows, back = (indices % len(self)).unique(return_inverse=True)
        items = [self._stream[row] for row in rows.tolist()]
        images = torch.stack([torch.as_tensor(item["image"]) for item in items])[back]
        labels = torch.tensor([item["label"] for item in items])[back]
        lower = torch.arange(len(indices)) + len(indices) * (indices >= len(self))
        return ImagesInMemory(images, labels, self.mirrors)[lower]


class Streaming(ImageData):
    """A stream that `write_stream` wrote, on S3, GCS, Azure or in a folder (extra `streaming`).

    The order is that of every other source, a function of (seed, epoch), whatever the ranks and workers; a chunk is
    fetched when the first of its images is asked for and kept in `cache`.

    Args:
        root: address, such as s3://bucket/folder, or a folder; `local:` before a folder fetches from it as from afar.
        image_size, channels: must be those of the stream.
        flip: see `PackedData`.
        cache: folder for what was fetched; null is LitData's own.
        batch_size, num_workers, seed: see `ImageData`.

    Raises:
        RefusedInput: the package is missing, there is no such stream, or its images are of another size.
    """

    possible_channels = (1, 3, 4)
    metrics = "none"

    def __init__(
        self,
        *,
        root: str,
        image_size: int = 64,
        channels: int = 3,
        flip: bool = False,
        cache: str | None = None,
        batch_size: int = 64,
        num_workers: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(image_size, channels, batch_size, num_workers, seed)
        self.root, self.flip, self.cache = root, flip, cache

    def make_dataset(self) -> _Streamed:
        try:
            dataset = _Streamed(self.root, self.cache, self.flip)
        except ImportError as error:
            raise RefusedInput(f"data=streaming needs the package litdata: {install_command('streaming')}") from error
        # the package's own errors and those of every storage
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise RefusedInput(f"data.root={self.root}: no stream can be read there: {reason[0]}") from error
        if tuple(dataset.shape) != (self.channels, self.image_size, self.image_size):
            raise RefusedInput(
                f"data.root={self.root}: its images are {tuple(dataset.shape)}: set data.channels={dataset.shape[0]}"
                f" and data.image_size={dataset.shape[1]}."
            )
        return dataset

    def real_batches(self, batch_size: int = 256) -> Iterator[UInt8[Tensor, "b c s s"]]:
        return (self.dataset[part]["image"] for part in torch.arange(len(self.dataset)).split(batch_size))


def write_stream(data: PackedData, folder: str | Path, chunk_bytes: int = 64_000_000) -> None:
    """Writes the packed images of a source as a stream, to be copied to object storage.

    Args:
        data: the source.
        folder: an empty or new folder.
        chunk_bytes: of one file of the stream.

    Raises:
        RefusedInput: the folder holds something already.
    """
    from litdata.streaming.writer import BinaryWriter

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise RefusedInput(f"{folder} is not empty: a stream needs a folder of its own.")
    writer = BinaryWriter(str(folder), chunk_bytes=chunk_bytes)
    for row, (image, label) in enumerate(zip(data.packed.images, data.packed.labels.tolist(), strict=True)):
        writer.add_item(row, {"image": image.numpy().copy(), "label": label})
    writer.done()
    writer.merge()
