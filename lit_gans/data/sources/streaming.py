"""Source of images that LitData streams from object storage, for data that do not fit on the disk of one machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from lit_gans.common.atomic import remove, replacing
from lit_gans.common.errors import RefusedInput, import_extra, refuse_below, refusing
from lit_gans.common.names import first_three
from lit_gans.common.paths import cache_folder
from lit_gans.common.progress import follow
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.digests import Fingerprint, digest_of_files, digest_of_parts, fingerprint, remembered
from lit_gans.data.loader import StepSampler
from lit_gans.data.packed.datamodule import PackedData, TranslationData, in_8_bits
from lit_gans.data.packed.format import PerProcess

_WAITS = 60.0  # maximum time to wait for a chunk that another process is downloading, in seconds
_POLL = 0.02
_BATCH = 1024  # number of images that are read at a time to compute a digest
_INDEX = "index.json"
_ABOUT = "lit_gans"  # key under which the index stores the result of `about`; LitData ignores this key
_FORMAT = re.compile(r"(no_header_)?(numpy|tensor)(:\d+)?|int")  # safe LitData formats; other formats can be pickles


def _opened(root: str, cache: str | None, cache_bytes: int) -> Any:
    litdata = import_extra("litdata", "streaming")
    local = _folder(root) / _INDEX
    if os.path.isfile(local):
        _raise_if_code(local)  # the constructor of `StreamingDataset` reads a local index immediately
    stream = litdata.StreamingDataset(root, cache_dir=cache, max_cache_size=cache_bytes)
    _raise_if_code(Path(stream.input_dir.path) / _INDEX)  # no row has been read yet
    return stream


def _folder(root: str) -> Path:
    """Returns the folder of a stream on this machine. For a remote stream, returns a path that does not exist."""
    return Path(root.removeprefix("local:"))


def _raise_if_code(index: Path) -> None:
    """Checks that the index of a stream is safe to read.

    LitData follows the index without checks: it would unpickle rows, import modules, and open chunk files at any path.

    Raises:
        RefusedInput: the stream contains anything other than arrays and integers in plain containers.
    """
    try:
        content = json.loads(index.read_bytes())
        config, files = content["config"], [chunk["filename"] for chunk in content["chunks"]]
        formats, spec = config["data_format"], json.loads(config["data_spec"])[1]
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedInput(
            f"{index}: this is not the index of a stream: copy it again, or write the stream with"
            " lit_gans.data.sources.streaming.write_stream."
        ) from error
    unsafe = [name for name in formats if not _FORMAT.fullmatch(name)]
    if unsafe:
        raise RefusedInput(
            f"{index}: its values are stored as {unsafe[0]}; expected arrays and integers, because other types could"
            " execute code"
        )
    nodes = [spec]
    for node in nodes:
        if node["type"] not in (None, "builtins.dict"):
            raise RefusedInput(
                f"{index}: its rows are of type {node['type']}; expected a dict, because other types could execute code"
            )
        nodes += node["children_spec"]
    outside = [file for file in files if Path(file).name != file]
    if outside:
        raise RefusedInput(f"{index}: its chunk {outside[0]} is outside of the folder of the stream")


def _item(stream: Any, row: int) -> Any:
    """Returns a row of a stream. Unlike LitData, waits for a chunk that another process is downloading."""
    until = time.monotonic() + _WAITS
    while True:
        try:
            return stream[row]
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL)


class _Streamed(Dataset):
    """Dataset with random access to the rows of a stream.

    Args:
        root: URL of the stream.
        cache: folder for downloaded chunks; None uses the default of LitData.
        cache_bytes: maximum size of the cache, in bytes.
        mirrors: whether to append the mirror images as further rows, as in `ImagesInMemory`.
    """

    def __init__(self, root: str, cache: str | None, cache_bytes: int, mirrors: bool) -> None:
        self.root, self.mirrors = root, mirrors
        self._stream = PerProcess(partial(_opened, root, cache, cache_bytes))
        stream = self._stream()
        first = stream[0]  # also downloads the index
        if not isinstance(first, dict) or "image" not in first:
            names = first_three(first) if isinstance(first, dict) else "no names"
            raise RefusedInput(
                f"data.root={root}: its rows have {names}: expected image, and label if there are classes."
            )
        image = torch.as_tensor(first["image"])
        self.shape, self.dtype, self.num = tuple(image.shape), image.dtype, len(stream.cache)
        self.chunks = [interval[0] for interval in stream.cache.get_chunk_intervals()]  # first row of each chunk
        self._index = (Path(stream.input_dir.path) / _INDEX).read_bytes()
        self._about: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self.num

    def about(self) -> dict[str, Any]:
        """Returns the fingerprint and data type of the images, the labels, and the number of classes.

        `write_stream` stores these values in the index, together with a digest of the chunks. If the chunks are on this
        machine, their digest is compared with the stored digest. If the digests differ, or the index does not contain
        these values, each machine reads the images once. It then stores the values in the cache folder, under the
        digests of the index and the chunks. Remote chunks are assumed to match their index.
        """
        if self._about is None:
            index, chunks = json.loads(self._index), ""
            if os.path.isfile(_folder(self.root) / _INDEX):
                chunks = _digest_of_chunks(_folder(self.root), index)
            about = index.get(_ABOUT)
            if about is None or chunks not in ("", about.get("chunks")):
                key = hashlib.sha256(self._index + chunks.encode()).hexdigest()
                about = remembered(cache_folder() / "digests" / f"{key}.json", _ABOUT, self._read)
            self._about = dict(about)
        return self._about

    def _read(self) -> dict[str, Any]:
        labels: list[int] = []
        types: set[torch.dtype] = set()

        def images() -> Iterator[Tensor]:
            batches = (self[rows] for rows in torch.arange(len(self)).split(_BATCH))
            for batch in follow("reading the stream", batches, len(self), size=lambda batch: len(batch["label"])):
                labels.extend(batch["label"].tolist())
                types.add(batch["image"].dtype)
                yield batch["image"]

        image_fingerprint = [*fingerprint(images())]
        num = max(labels) + 1 if any(labels) else 0
        return {"images": image_fingerprint, "dtype": str(*types), "labels": labels, "num_classes": num}

    @property
    def labels(self) -> Int64[Tensor, " n"]:
        """Class index of each image."""
        return torch.tensor(self.about()["labels"], dtype=torch.int64)

    def __getitem__(self, indices: Int64[Tensor, " b"]) -> dict[str, Tensor]:
        # with sorted, unique rows, each chunk is opened only once per step
        rows, back = (indices % len(self)).unique(return_inverse=True)
        stream = self._stream()
        items = [self._row(stream, row) for row in rows.tolist()]
        images = torch.stack([image for image, _ in items])[back]
        labels = torch.tensor([label for _, label in items])[back]
        lower = torch.arange(len(indices)) + len(indices) * (indices >= len(self))
        return ImagesInMemory(images, labels, self.mirrors)[lower]

    def _row(self, stream: Any, row: int) -> tuple[Tensor, int]:
        """Returns an image and its label, which is 0 if the stream has no labels."""
        item = _item(stream, row)
        image, label = torch.as_tensor(item["image"]), item.get("label", 0)
        if image.shape != self.shape:
            raise RefusedInput(
                f"data.root={self.root}: image {row} has the shape {tuple(image.shape)}, but the first image has the"
                f" shape {self.shape}: all images must have the same shape."
            )
        if image.dtype != self.dtype:
            raise RefusedInput(
                f"data.root={self.root}: image {row} has {image.dtype} values, but the first image has {self.dtype}"
                " values: all images must have the same type."
            )
        if int(label) != label or label < 0:
            raise RefusedInput(f"data.root={self.root}: image {row} has the label {label}: expected an integer >= 0.")
        return image, int(label)


def _digest_of_chunks(folder: Path, index: dict[str, Any]) -> str:
    """Returns the digest of the chunks in a folder. Each machine reads the chunks only once."""
    return digest_of_files([folder / chunk["filename"] for chunk in index["chunks"]], cache_folder())


class Streaming(ImageData):
    """Images streamed from S3, GCS, Azure or a folder, as written by `write_stream` (extra `streaming`).

    The order depends only on (seed, epoch), for any number of ranks and workers. Chunks are shuffled first, and then
    the images within each window of consecutive images. Every machine downloads a chunk when it first needs an image of
    the chunk, and stores the chunk in `cache` while there is space.

    Args:
        root: URL, such as s3://bucket/folder, or a folder. The prefix `local:` treats a folder as a remote stream.
        image_size, channels: size and number of channels of the images, which must match the stream.
        flip: whether to flip half of the images horizontally, by a random bit that depends on (seed, epoch, image).
        window: number of images that are shuffled together. 0 shuffles all images together, as all other sources do.
            Every chunk is then read many times per epoch, so the stream should fit on the disk.
        cache: folder for downloaded chunks; null uses the default of LitData.
        cache_bytes: maximum size of the cache, in bytes. If it is exceeded, chunks that have been used are deleted.
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
        refuse_below(0, cache_bytes=cache_bytes, window=window)
        self.root, self.flip, self.window = root, flip, window
        self.cache, self.cache_bytes = cache, cache_bytes

    def make_dataset(self) -> _Streamed:
        with refusing(f"data.root={self.root}: no stream can be read there"):
            dataset = _Streamed(self.root, self.cache, self.cache_bytes, self.flip)
        shape, known = dataset.shape, self.possible_channels
        last = len(shape) == 3 and shape[0] not in known and shape[2] in known
        if last or len(shape) != 3:
            how = "; write image[None]" if len(shape) == 2 else ""
            if last:
                how = ", and the channels are last: write image.transpose(2, 0, 1)"
            raise RefusedInput(
                f"data.root={self.root}: its images have the shape {shape}: expected (channels, height, width){how}."
            )
        if shape != (self.channels, *sides(self.image_size)):
            raise RefusedInput(
                f"data.root={self.root}: its images have the shape {shape}: set data.channels={shape[0]} and"
                f" data.image_size={size_value(as_size(shape[1:]))}."
            )
        return dataset

    @property
    def class_names(self) -> list[str]:  # type: ignore[override]
        names: list[str] = self.dataset.about().get("class_names", [])
        return names

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """Number of classes of the stream; 0 if the stream has no labels."""
        return int(self.dataset.about().get("num_classes", 0))

    def _sampler(self, **settings: Any) -> StepSampler:
        return super()._sampler(window=self.window, chunks=self.dataset.chunks, **settings)

    def digests(self) -> dict[str, str]:
        """Returns the digest of images and labels.

        The packed images from which the stream was written have the same digest.
        """
        about = self.dataset.about()
        labels = ["torch.int64", *fingerprint([self.dataset.labels])]
        return {"images": digest_of_parts(image=[about["dtype"], *about["images"]], label=labels)}

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b c h w"]]:
        """Returns an iterator over batches of all images, converted to uint8 for metrics; see `ImageData`."""
        return map(in_8_bits, super().real_batches(batch_size, start, stop))

    def real_fingerprint(self) -> Fingerprint:
        about = self.dataset.about()
        is_stored = type(self).real_batches is Streaming.real_batches and about["dtype"] == str(torch.uint8)
        return Fingerprint(*about["images"]) if is_stored else super().real_fingerprint()


def refuse_filled(folder: Path) -> None:
    """Raises `RefusedInput` if the folder for a new stream is not empty."""
    if os.path.isdir(folder) and any(folder.iterdir()):
        raise RefusedInput(f"stream={folder} is not empty: a stream needs a new or empty folder.")


def write_stream(data: PackedData, folder: str | Path, chunk_bytes: int = 64_000_000) -> None:
    """Writes the packed images of a source as a stream, which can then be copied to object storage.

    If an exception interrupts the writing, the files that were written are removed.

    Args:
        data: source of the images.
        folder: path of an empty or new folder.
        chunk_bytes: size of each chunk file of the stream, in bytes.

    Raises:
        RefusedInput: the folder is not empty, the package is missing, or `Streaming` does not support such images.
    """
    if isinstance(data, TranslationData) or data.channels not in Streaming.possible_channels:
        kind = "pairs or two domains" if isinstance(data, TranslationData) else f"{data.channels} channels"
        raise RefusedInput(f"stream={folder}: a stream cannot have images of {kind}: use data.cache on a shared disk.")
    writing = import_extra("litdata.streaming.writer", "streaming")
    folder = Path(folder)
    refuse_filled(folder)
    is_new = not os.path.isdir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _write(data, folder, writing, chunk_bytes)
    except BaseException:
        # the folder is not replaced as a whole, because it can be the mount point of a disk
        with suppress(OSError):
            for path in folder.iterdir():
                remove(path)
            if is_new:
                folder.rmdir()
        raise


def _write(data: PackedData, folder: Path, writing: Any, chunk_bytes: int) -> None:
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
        "num_classes": data.num_classes,
        "class_names": [*data.class_names],
    }
    index = folder / _INDEX
    content = json.loads(index.read_bytes())
    content[_ABOUT] = about | {"chunks": _digest_of_chunks(folder, content)}
    with replacing(index) as part:
        part.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
