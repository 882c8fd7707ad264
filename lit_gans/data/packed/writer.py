"""Packs a source: decodes and resizes all images in several processes; resumes after an interruption.

What is unfinished is in a folder that ends in `.part`; only what is complete gets its final name.
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
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from lit_gans.common.errors import RefusedInput
from lit_gans.common.progress import follow
from lit_gans.data.decoding import IN_16_BITS
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

_CHUNK = 64  # number of images that one process decodes at once
_HEADER = 128  # bytes of the header of `images.npy`, whatever the number of images
_LITTLE = 0.5  # share of a range
_LISTED = 20  # number of skipped files to print; `rows.jsonl` lists all


def pack(path: Path, source: Source, frame: Frame | PairFrame, on_error: OnError, about: dict[str, Any]) -> Packed:
    """Packs a source, or resumes an interrupted packing; replaces a damaged one, with a warning. Waits while another
    process packs the same source.

    Args:
        path: path of the new folder; its name must depend on everything that determines its content.
        source: source to pack.
        frame: conversion of pictures to images.
        on_error: `raise` raises an error at the first unreadable file, `skip` skips such files and lists them.
        about: description of the source to store with the images.

    Raises:
        RefusedInput: a file cannot be read, no file can be read, or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            packed = open_good(path)
            if packed is None:  # no other process was faster
                if path.exists():
                    logger.warning("%s is damaged, nothing of it is used: it is packed again.", path)
                    shutil.rmtree(path)
                part = path.with_name(f"{path.name}.part")
                part.mkdir(exist_ok=True)
                about = about | {"left_out": [*source.left_out], "value_range": frame.value_range}
                start = time.perf_counter()
                num = _write(part, frame, _Chunks(source, frame, on_error), about)
                os.replace(part, path)
                packed = open_packed(path)
                _report(packed, num, time.perf_counter() - start)
            return packed
    except OSError as error:
        raise RefusedInput(f"{path} cannot be written ({error.strerror}): choose another data.cache.") from error


def available_cores() -> int:
    """Returns the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _write(part: Path, frame: Frame | PairFrame, decoder: _Chunks, about: dict[str, Any]) -> int:
    """Writes all chunks that `part` lacks, and returns the number of pictures that were read."""
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
            images.write(chunk.pop("images"))
            images.flush()  # before its line says that it is there
            rows.write(line_of(chunk))
            rows.flush()
            num += len(chunk["labels"])
        if not num:
            raise RefusedInput(f"{about['source']}: none of its {total} images can be read.")
        images.seek(0)
        described = {"descr": dtype.str, "fortran_order": False, "shape": (num, *frame.shape)}
        np.lib.format.write_array_header_1_0(images, described)  # last: what is unfinished has none
        for file in (images, rows):
            file.flush()
            os.fsync(file.fileno())
    return total - begun


def _num_read(chunk: dict[str, Any]) -> int:
    return len(chunk["labels"]) + len(chunk["skipped"])


def _written(part: Path, image_bytes: int) -> list[dict[str, Any]]:
    """Returns the chunks that an interrupted packing has written."""
    chunks: list[dict[str, Any]] = []
    with suppress(FileNotFoundError, DamagedPacked), (part / IMAGES).open("rb") as images:
        images.seek(_HEADER)
        lines = lines_in(part / ROWS)
        next(lines, None)  # of the source
        for chunk in lines:
            # after a loss of power, a line may speak of images that never reached the disk
            if zlib.crc32(images.read(len(chunk["labels"]) * image_bytes)) != chunk["checksum"]:
                break
            chunks.append(chunk)
    return chunks


def _decoded(decoder: _Chunks, starts: range) -> Iterator[dict[str, Any]]:
    """Yields chunks in order while processes prepare the next few, with constant memory."""
    workers = 0 if current_process().daemon else available_cores()  # a daemonic process may not have children
    workers = workers if len(starts) > workers else 0
    loader: DataLoader[dict[str, Any]] = DataLoader(
        decoder,
        sampler=starts,
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # seeding the workers must not change global random numbers
        # a new interpreter would import for seconds; forks are safe, as they use neither torch kernels nor a device
        multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
    )
    for chunk in loader:
        if "refused" in chunk:  # not raised in the process, whose traceback would become part of the sentence
            raise RefusedInput(chunk["refused"])
        yield chunk


class _Chunks(Dataset):
    """Chunks of images by the index of their first item in the source; bytes, since shared memory is often small."""

    def __init__(self, source: Source, frame: Frame | PairFrame, on_error: OnError) -> None:
        self.source, self.frame, self.on_error = source, frame, on_error

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, start: int) -> dict[str, Any]:
        images, labels, skipped = bytearray(), [], []
        notes: Counter[str] = Counter()
        extents: dict[str, list[float]] = {}
        stop = min(start + _CHUNK, len(self.source))
        for item in range(start, stop):
            said: list[str] = []
            try:
                picture = self.source.picture(item, said)
                image = self.frame.fit(picture, self.source.name(item), said)
                label = self.source.label(item)
            except RefusedInput as error:
                if self.on_error == "raise":
                    return {"refused": f"{str(error).rstrip('.')}; data.on_error=skip leaves bad files out."}
                skipped.append(str(error))
                continue
            images += image.tobytes()
            labels.append(label)
            notes.update(said)
            kinds = _kinds(picture, IN_16_BITS in said, self.source.domain(item))
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


def _report(packed: Packed, num: int, seconds: float) -> None:
    speed = f" in {seconds:.1f} s, {num / seconds:.0f} a second" if num else ""
    lines = [f"packed {len(packed.images)} images{speed}: {packed.path}"]
    lines += [f"  {count} {note}" for note, count in sorted(packed.about["notes"].items())]
    logger.info("\n".join(lines))
    little = list_of_little_used(packed)
    if little:
        logger.warning("\n".join(little))
    if packed.about["skipped"]:
        logger.warning("\n".join(list_of_skipped(packed.about["skipped"])))


def _kinds(picture: Any, has_16_bits: bool, domain: str) -> list[str]:
    """Returns the type of the values in a file and its domain; of a pair, those of both sides."""
    sides = picture if isinstance(picture, tuple) else (picture,)
    domains = ("A", "B") if len(sides) == 2 else (domain,)
    types = (
        side.dtype.name if isinstance(side, np.ndarray) else "uint16" if has_16_bits else "uint8" for side in sides
    )
    return [f"{of} {name}".strip() for name, of in zip(types, domains, strict=True)]


def _extents(image: np.ndarray, kinds: list[str], parts: tuple[slice, ...]) -> dict[str, list[float]]:
    """Returns the lowest and the highest value of each side of an image, as shares of the range."""
    offset, scale = (0, 255) if image.dtype == np.uint8 else (1, 2)
    sides = [image[part] for part in parts]
    return {
        kind: [(float(side.min()) + offset) / scale, (float(side.max()) + offset) / scale]
        for kind, side in zip(kinds, sides, strict=True)
    }


def list_of_little_used(packed: Packed) -> list[str]:
    """Returns a line about each kind of file whose values cover less than half of their range, or none."""
    given, lines = packed.about["value_range"], []
    rounding = 0.5 / 255 if packed.images.dtype == torch.uint8 else 0
    for kind, (low, high) in packed.about["extents"].items():
        if 0 < high - low < _LITTLE:
            first, last = given or RANGES[kind.split()[-1]]
            line = f"  {kind} files use only {high - low:.1%} of the range from {first:g} to {last:g}"
            ends = _narrower(low, high, last, rounding) if given is None else "LOW,HIGH"
            lines.append(f"{line}: data.value_range=[{ends}] would keep more of their contrast")
    return lines


def _narrower(low: float, high: float, last: float, rounding: float) -> str:
    """Returns the range of as many bits as the values need, or the values themselves if these need all bits."""
    power = 2 ** round(last * max(high - rounding, 0)).bit_length() - 1
    return f"0,{power}" if power < last / 2 else f"{math.floor(low * last)},{math.ceil(high * last)}"


def list_of_skipped(skipped: Sequence[str]) -> list[str]:
    """Returns lines that name the skipped files, or none."""
    if not skipped:
        return []
    more = len(skipped) - _LISTED
    lines = [f"  {len(skipped)} left out (data.on_error=skip):", *(f"    {line}" for line in skipped[:_LISTED])]
    return lines + ([f"    and {more} more"] if more > 0 else [])
