"""Images streamed from object storage by LitData, for data that exceed the disks of one machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import Dataset

from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput, import_extra, refuse_below, refusing
from lit_gans.common.paths import cache_folder
from lit_gans.common.progress import follow
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.digests import Fingerprint, digest_of_parts, fingerprint, remembered
from lit_gans.data.loader import StepSampler
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import PerProcess

_WAITS = 60.0  # seconds to wait for a chunk that another process is downloading
_POLL = 0.02
_BATCH = 1024  # number of images that are read at once for a digest
_INDEX = "index.json"
_ABOUT = "lit_gans"  # key of the index with fingerprint, type and labels of the images, which LitData ignores
_FORMAT = re.compile(r"(no_header_)?(numpy|tensor)(:\d+)?|int")  # of LitData; others may be pickles


def _opened(root: str, cache: str | None, cache_bytes: int) -> Any:
    litdata = import_extra("litdata", "streaming")
    local = Path(root.removeprefix("local:")) / _INDEX
    if os.path.isfile(local):
        _refuse_code(local)  # LitData reads it at once
    stream = litdata.StreamingDataset(root, cache_dir=cache, max_cache_size=cache_bytes)
    _refuse_code(Path(stream.input_dir.path) / _INDEX)  # rows are read later
    return stream


def _refuse_code(index: Path) -> None:
    """Checks a stream's index, by which LitData would unpickle rows, import modules and name the files of chunks.

    Raises:
        RefusedInput: the stream contains more than arrays and integers in plain containers.
    """
    content = json.loads(index.read_bytes())
    config = content["config"]
    others = [name for name in config["data_format"] if not _FORMAT.fullmatch(name)]
    if others:
        raise RefusedInput(
            f"{index}: its values are stored as {others[0]}, expected arrays and integers; it could execute code"
        )
    nodes = [json.loads(config["data_spec"])[1]]
    for node in nodes:
        if node["type"] not in (None, "builtins.dict"):
            raise RefusedInput(f"{index}: its rows are of {node['type']}, expected a dict; it could execute code")
        nodes += node["children_spec"]
    outside = [chunk["filename"] for chunk in content["chunks"] if Path(chunk["filename"]).name != chunk["filename"]]
    if outside:
        raise RefusedInput(f"{index}: its chunk {outside[0]} is outside of its folder")


def _item(stream: Any, row: int) -> Any:
    """Returns a row; unlike LitData, waits for a chunk that another process is downloading."""
    until = time.monotonic() + _WAITS
    while True:
        try:
            return stream[row]
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL)


class _Streamed(Dataset):
    """Dataset of the rows of a stream, with random access.

    Args:
        root: address of the stream.
        cache: folder for downloaded chunks; null uses LitData's default.
        cache_bytes: maximum size of the cache.
        mirrors: whether to serve mirror images, as in `ImagesInMemory`.
    """

    def __init__(self, root: str, cache: str | None, cache_bytes: int, mirrors: bool) -> None:
        self.mirrors = mirrors
        self._stream = PerProcess(partial(_opened, root, cache, cache_bytes))
        stream = self._stream()
        self.shape, self.num = stream[0]["image"].shape, len(stream.cache)  # row 0 downloads the index, too
        self.chunks = [interval[0] for interval in stream.cache.get_chunk_intervals()]  # first row of each
        self._index = (Path(stream.input_dir.path) / _INDEX).read_bytes()

    def __len__(self) -> int:
        return self.num

    def about(self) -> dict[str, Any]:
        """Returns fingerprint and type of the images, and the labels.

        `write_stream` stores them in the index, whose time of writing distinguishes it from any other. Those of other
        streams are read once on each machine, and stored in the cache folder by the digest of the index.
        """
        found = json.loads(self._index).get(_ABOUT)
        if found is None:
            known = cache_folder() / "digests" / f"{hashlib.sha256(self._index).hexdigest()}.json"
            found = remembered(known, _ABOUT, self._read)
        return dict(found)

    def _read(self) -> dict[str, Any]:
        labels: list[int] = []
        types: set[torch.dtype] = set()

        def images() -> Iterator[Tensor]:
            batches = (self[rows] for rows in torch.arange(len(self)).split(_BATCH))
            for batch in follow("reading the stream", batches, len(self), size=lambda batch: len(batch["label"])):
                labels.extend(batch["label"].tolist())
                types.add(batch["image"].dtype)
                yield batch["image"]

        return {"images": [*fingerprint(images())], "dtype": str(*types), "labels": labels}

    @property
    def labels(self) -> Int64[Tensor, " n"]:
        """Class of each image."""
        return torch.tensor(self.about()["labels"], dtype=torch.int64)

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        # opens each chunk once per step, in any order
        rows, back = (indices % len(self)).unique(return_inverse=True)
        stream = self._stream()
        items = [_item(stream, row) for row in rows.tolist()]
        images = torch.stack([torch.as_tensor(item["image"]) for item in items])[back]
        labels = torch.tensor([item["label"] for item in items])[back]
        lower = torch.arange(len(indices)) + len(indices) * (indices >= len(self))
        return ImagesInMemory(images, labels, self.mirrors)[lower]


class Streaming(ImageData):
    """A stream written by `write_stream`, on S3, GCS, Azure or in a folder (extra `streaming`).

    The order depends only on (seed, epoch), for any number of ranks and workers: chunks are shuffled, then the images
    within each window of consecutive images. Every machine downloads a chunk when its first image is needed, and
    stores it in `cache` while there is space.

    Args:
        root: address, such as s3://bucket/folder, or a folder; the prefix `local:` treats a folder as remote.
        image_size, channels: size and number of channels, which must match the stream.
        flip: whether to flip half of the images horizontally, by a random bit of (seed, epoch, image).
        window: number of images that are shuffled together; 0 shuffles all images, as all other sources do, but
            accesses all chunks continually, which suits only streams that fit on the disk.
        cache: folder for downloaded chunks; null uses LitData's default.
        cache_bytes: maximum size of the cache; new chunks replace used ones.
        batch_size, num_workers, seed: see `ImageData`.

    Raises:
        RefusedInput: the package is missing, the stream does not exist, or its images have another size.
    """

    possible_channels = (1, 3, 4)

    def __init__(
        self,
        *,
        root: str,
        image_size: Size = 64,
        channels: int = 3,
        flip: bool = False,
        window: int = 65_536,
        cache: str | None = None,
        cache_bytes: int = 100_000_000_000,
        batch_size: int = 64,
        num_workers: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(image_size, channels, batch_size, num_workers, seed)
        refuse_below(0, cache_bytes=cache_bytes)
        self.root, self.flip, self.window = root, flip, window
        self.cache, self.cache_bytes = cache, cache_bytes

    def make_dataset(self) -> _Streamed:
        with refusing(f"data.root={self.root}: no stream can be read there"):
            dataset = _Streamed(self.root, self.cache, self.cache_bytes, self.flip)
        if tuple(dataset.shape) != (self.channels, *sides(self.image_size)):
            raise RefusedInput(
                f"data.root={self.root}: its images are {tuple(dataset.shape)}: set data.channels={dataset.shape[0]}"
                f" and data.image_size={size_value(as_size(dataset.shape[1:]))}."
            )
        return dataset

    def _sampler(self, **settings: Any) -> StepSampler:
        return super()._sampler(window=self.window, chunks=self.dataset.chunks, **settings)

    def digests(self) -> dict[str, str]:
        """Returns the digest of images and labels, which is that of the packed images that the stream was made of."""
        about = self.dataset.about()
        labels = ["torch.int64", *fingerprint([self.dataset.labels])]
        return {"images": digest_of_parts(image=[about["dtype"], *about["images"]], label=labels)}

    def real_fingerprint(self) -> Fingerprint:
        about = self.dataset.about()
        own = type(self).real_batches is Streaming.real_batches and about["dtype"] == str(torch.uint8)
        return Fingerprint(*about["images"]) if own else super().real_fingerprint()


def refuse_filled(folder: Path) -> None:
    """Raises `RefusedInput` if a folder for a stream contains anything."""
    if os.path.isdir(folder) and any(folder.iterdir()):
        raise RefusedInput(f"stream={folder} is not empty: a stream needs a new or empty folder.")


def write_stream(data: PackedData, folder: str | Path, chunk_bytes: int = 64_000_000) -> None:
    """Writes the packed images of a source as a stream, which can be copied to object storage.

    Args:
        data: source of the images.
        folder: empty or new folder.
        chunk_bytes: size of each file of the stream.

    Raises:
        RefusedInput: the folder is not empty, or the package is missing.
    """
    writing = import_extra("litdata.streaming.writer", "streaming")
    folder = Path(folder)
    refuse_filled(folder)
    folder.mkdir(parents=True, exist_ok=True)
    writer = writing.BinaryWriter(str(folder), chunk_bytes=chunk_bytes)
    for row, (image, label) in enumerate(zip(data.packed.images, data.packed.labels.tolist(), strict=True)):
        writer.add_item(row, {"image": image.numpy().copy(), "label": label})
    writer.done()
    writer.merge()
    images = data.packed.images
    about = {
        "images": [*fingerprint(follow("reading the packed images", images.split(_BATCH), len(images)))],
        "dtype": str(images.dtype),
        "labels": data.packed.labels.tolist(),
    }
    index = folder / _INDEX
    content = json.loads(index.read_bytes()) | {_ABOUT: about}
    with replacing(index) as part:
        part.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
