"""Packs a source: decodes and resizes all images in several processes, and resumes after an interruption.

Unfinished packed images are in a folder whose name ends with `.part`. The folder is renamed when it is complete.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import current_process, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from lit_gans.common.errors import RefusedInput
from lit_gans.common.progress import follow
from lit_gans.data.decoding import stored_type
from lit_gans.data.files import OnError
from lit_gans.data.images import RANGES, Frame, PairFrame
from lit_gans.data.packed.format import (
    IMAGES,
    ROWS,
    DamagedPacked,
    Packed,
    Source,
    joined_extents,
    line_of,
    lines_in,
    open_good,
    open_packed,
)

logger = logging.getLogger(__name__)

_CHUNK = 64  # number of images per chunk; a process decodes one chunk at a time
_HEADER = 128  # size of the header of `images.npy` in bytes, for any number of images
_LITTLE = 0.5  # fraction of the value range; files that use a smaller fraction cause a warning
_LISTED = 20  # maximum number of skipped files to print; `rows.jsonl` lists all


def pack(path: Path, source: Source, frame: Frame | PairFrame, on_error: OnError, about: dict[str, Any]) -> Packed:
    """Packs a source, or resumes packing after an interruption.

    Damaged packed images are replaced, with a warning. While another process packs the same source, this function
    waits.

    Args:
        path: path of the new folder. Its name must depend on everything that determines its contents.
        source: source to pack.
        frame: conversion of decoded files to images.
        on_error: `raise` raises an error at the first unreadable file; `skip` skips unreadable files and lists them.
        about: description of the source, which is stored with the images.

    Raises:
        RefusedInput: a file cannot be read, no file can be read, the source has more or fewer labels than images, or
            the folder cannot be written.
    """
    if source.labels is not None and len(source.labels) != len(source):
        raise RefusedInput(
            f"{about['source']}: {len(source.labels)} labels for {len(source)} images: each image needs exactly one."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            packed = open_good(path)
            if packed is None:  # otherwise, another process has packed the source while this process waited
                if path.exists():
                    logger.warning("%s is damaged and not used: the images are packed again.", path)
                    shutil.rmtree(path)
                part = path.with_name(f"{path.name}.part")
                part.mkdir(exist_ok=True)
                about = about | {
                    "left_out": [*source.left_out],
                    "value_range": frame.value_range,
                    "class_names": [*source.class_names],
                }
                start = time.perf_counter()
                num = _write(part, frame, _Chunks(source, frame), on_error, about)
                os.replace(part, path)
                packed = open_packed(path)
                _report(packed, num, time.perf_counter() - start)
            return packed
    except OSError as error:
        raise RefusedInput(f"{path} cannot be written ({error.strerror}): choose another data.cache.") from error


def available_cores() -> int:
    """Returns the number of CPU cores that this process can use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _write(part: Path, frame: Frame | PairFrame, decoder: _Chunks, on_error: OnError, about: dict[str, Any]) -> int:
    """Writes all chunks that `part` does not contain yet, and returns the number of files that were read."""
    dtype = np.dtype(frame.dtype)
    total, image_bytes = len(decoder), math.prod(frame.shape) * dtype.itemsize
    chunks = _written(part, image_bytes)
    begun = chunks[-1]["stop"] if chunks else 0
    num = sum(len(chunk["labels"]) for chunk in chunks)
    (part / ROWS).write_bytes(b"".join(map(line_of, [about, *chunks])))
    (part / IMAGES).touch()
    decoded = _decoded(decoder, range(begun, total, _CHUNK))
    with (part / IMAGES).open("r+b") as images, (part / ROWS).open("ab") as rows:
        images.truncate(_HEADER + num * image_bytes)
        images.seek(0, os.SEEK_END)
        for chunk in follow(f"packing {part.stem}", decoded, total, begun, _num_read):
            if chunk["skipped"] and on_error == "raise":
                raise RefusedInput(_list_of_refused(chunk["skipped"]))
            images.write(chunk.pop("images"))
            images.flush()  # the images must be in the file before the line that describes them
            rows.write(line_of(chunk))
            rows.flush()
            num += len(chunk["labels"])
        if not num:
            raise RefusedInput(f"{about['source']}: none of its {total} images can be read.")
        images.seek(0)
        described = {"descr": dtype.str, "fortran_order": False, "shape": (num, *frame.shape)}
        np.lib.format.write_array_header_1_0(images, described)  # written last, to mark the file as complete
        for file in (images, rows):
            file.flush()
            os.fsync(file.fileno())
    return total - begun


def _num_read(chunk: dict[str, Any]) -> int:
    return len(chunk["labels"]) + len(chunk["skipped"])


def _written(part: Path, image_bytes: int) -> list[dict[str, Any]]:
    """Returns the descriptions of the chunks that were written before an interruption."""
    chunks: list[dict[str, Any]] = []
    with suppress(FileNotFoundError, DamagedPacked), (part / IMAGES).open("rb") as images:
        images.seek(_HEADER)
        lines = lines_in(part / ROWS)
        next(lines, None)  # skips the line that describes the source
        for chunk in lines:
            # after a power failure, a line might describe images that never reached the disk
            if zlib.crc32(images.read(len(chunk["labels"]) * image_bytes)) != chunk["checksum"]:
                break
            chunks.append(chunk)
    return chunks


def _decoded(decoder: _Chunks, starts: range) -> Iterator[dict[str, Any]]:
    """Yields decoded chunks in order, while worker processes prepare the next chunks. Memory usage is constant."""
    workers = 0 if current_process().daemon else available_cores()  # daemonic processes cannot have children
    workers = workers if len(starts) > workers else 0
    loader: DataLoader[dict[str, Any]] = DataLoader(
        decoder,
        sampler=starts,
        batch_size=None,
        num_workers=workers,
        worker_init_fn=_end_with_parent,
        generator=torch.Generator(),  # seeding the workers must not advance torch's global generator
        # starting new interpreters would take seconds; forks are safe, because they use no torch kernels and no device
        multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
    )
    yield from loader


def _end_with_parent(_worker: int) -> None:
    """Ends this worker process when its parent is killed. It could be waiting for the parent to read a chunk."""
    parent = parent_process()

    def end() -> None:
        parent.join()  # type: ignore[union-attr]
        os._exit(1)

    Thread(target=end, daemon=True).start()


class _Chunks(Dataset):
    """Dataset of encoded chunks. The index of a chunk is the index of its first image in the source.

    Images are encoded as bytes, because tensors would need shared memory, which is often small.
    """

    def __init__(self, source: Source, frame: Frame | PairFrame) -> None:
        self.source, self.frame = source, frame

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, start: int) -> dict[str, Any]:
        images, labels, skipped = bytearray(), [], []
        notes: Counter[str] = Counter()
        extents: dict[str, list[float]] = {}
        stop = min(start + _CHUNK, len(self.source))
        for item in range(start, stop):
            item_notes: list[str] = []
            try:
                picture = self.source.picture(item, item_notes)
                image = self.frame.fit(picture, self.source.name(item), item_notes)
                label = self.source.label(item)
            except RefusedInput as error:  # not raised, because the message of a worker's error contains a traceback
                skipped.append(str(error))
                continue
            except OSError as error:  # otherwise, `pack` would report that it cannot write
                skipped.append(f"{self.source.name(item)} cannot be read: {error}")
                continue
            images += image.tobytes()
            labels.append(label)
            notes.update(item_notes)
            kinds = _kinds(picture, self.source.domain(item))
            extents = joined_extents([extents, _extents(image, kinds, self.frame.parts)])
        return {
            "images": bytes(images),
            "stop": stop,
            "labels": labels,
            "checksum": zlib.crc32(images),
            "skipped": skipped,
            "notes": dict(notes),
            "extents": extents,
        }


def _list_of_refused(errors: Sequence[str]) -> str:
    """Returns the message of the error for files that cannot be read, of which there can be more."""
    skip = "data.on_error=skip leaves bad files out."
    errors = list(dict.fromkeys(errors))  # a missing package is the same error for each file
    if len(errors) == 1:
        return f"{errors[0].rstrip('.')}; {skip}"
    return "\n".join(
        [f"{len(errors)} or more files cannot be read; {skip}", *(f"    {error}" for error in errors[:_LISTED])]
    )


def _report(packed: Packed, num: int, seconds: float) -> None:
    speed = f" in {seconds:.1f} s, {num / seconds:.0f} per second" if num else ""
    lines = [f"packed {len(packed.images)} images{speed}: {packed.path}"]
    lines += [f"  {count} {note}" for note, count in sorted(packed.about["notes"].items())]
    logger.info("\n".join(lines))
    little = list_of_little_used(packed)
    if little:
        logger.warning("\n".join(little))
    if packed.about["skipped"]:
        logger.warning("\n".join(list_of_skipped(packed.about["skipped"])))


def _kinds(picture: Any, domain: str) -> list[str]:
    """Returns the kind of a file: its domain and data type. For a pair, returns the kinds of both files."""
    sides = picture if isinstance(picture, tuple) else (picture,)
    domains = ("A", "B") if len(sides) == 2 else (domain,)
    return [f"{prefix} {stored_type(side)}".strip() for side, prefix in zip(sides, domains, strict=True)]


def _extents(image: np.ndarray, kinds: list[str], parts: tuple[slice, ...]) -> dict[str, list[float]]:
    """Returns the lowest and the highest value of an image, by kind of file, as fractions of the value range.

    For a pair, `parts` selects the channels of each file, and `kinds` contains two kinds.
    """
    offset, scale = (0, 255) if image.dtype == np.uint8 else (1, 2)
    sides = [image[part] for part in parts]
    return {
        kind: [(float(side.min()) + offset) / scale, (float(side.max()) + offset) / scale]
        for kind, side in zip(kinds, sides, strict=True)
    }


def list_of_little_used(packed: Packed) -> list[str]:
    """Returns a line of text for each kind of file whose values cover less than half of the value range."""
    value_range, lines = packed.about["value_range"], []
    rounding = 0.5 / 255 if packed.images.dtype == torch.uint8 else 0
    extents = packed.about["extents"]
    is_mixed = len({kind.split()[-1] for kind in extents}) > 1
    for kind, (low, high) in extents.items():
        if 0 < high - low < _LITTLE:
            first, last = value_range or RANGES[kind.split()[-1]]
            line = f"  {kind} files use only {high - low:.1%} of the range from {first:g} to {last:g}"
            ends = _narrower(low, high, last, rounding) if value_range is None else "LOW,HIGH"
            advice = f"data.value_range=[{ends}] would keep more of their contrast"
            if is_mixed:  # one value range would make files of another type black or white
                advice = "store all files with the same type of values to set a data.value_range for all of them"
            lines.append(f"{line}: {advice}")
    return lines


def _narrower(low: float, high: float, last: float, rounding: float) -> str:
    """Suggests a value range, as text: the range of the smallest sufficient number of bits.

    If the values need all bits, returns their lowest and highest value instead.
    """
    power = 2 ** round(last * max(high - rounding, 0)).bit_length() - 1
    return f"0,{power}" if power < last / 2 else f"{math.floor(low * last)},{math.ceil(high * last)}"


def list_of_skipped(skipped: Sequence[str]) -> list[str]:
    """Returns lines of text that list the skipped files. If no files were skipped, there are no lines."""
    if not skipped:
        return []
    more = len(skipped) - _LISTED
    lines = [f"  {len(skipped)} left out (data.on_error=skip):", *(f"    {line}" for line in skipped[:_LISTED])]
    return lines + ([f"    and {more} more"] if more > 0 else [])
