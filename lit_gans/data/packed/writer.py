"""Writer of packed files: decodes and resizes all images in several processes; resumes after an interruption.

An unfinished file ends in `.part` and has a journal next to it; only a finished file gets its final name.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from lit_gans.common.errors import RefusedInput
from lit_gans.common.progress import progress_bar
from lit_gans.data.images import Frame
from lit_gans.data.packed.format import FORMAT_VERSION, MARK, TAIL, OnError, Source, is_good
from lit_gans.data.packed.progress import Notices

logger = logging.getLogger(__name__)

_CHUNK = 64  # number of images that one process decodes at once
_LISTED = 20  # number of skipped files to print; the packed file lists all


def pack(
    path: Path,
    source: Source,
    frame: Frame,
    on_error: OnError,
    about: dict[str, Any],
    num_workers: int | None = None,
    on_chunk: Callable[[], None] = lambda: None,
) -> None:
    """Writes a packed file, or resumes an interrupted one; replaces a damaged one, with a warning. Waits while another
    process packs the same file.

    Args:
        path: path of the file; its name must depend on everything that determines its content.
        source: source to pack.
        frame: conversion of pictures to images.
        on_error: `raise` raises an error at the first unreadable file, `skip` skips such files and lists them.
        about: description of the source to store in the file.
        num_workers: number of decoding processes; None uses the number of cores available to this process, and 0 in a
            daemonic process, which may not have children.
        on_chunk: called after every chunk is written.

    Raises:
        RefusedInput: a file cannot be read, no file can be read, or the packed file cannot be written.
    """
    if num_workers is None:
        num_workers = 0 if current_process().daemon else available_cores()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not is_good(path):  # no other process was faster
                if path.exists():
                    logger.warning("%s is damaged, nothing of it is used: it is packed again.", path)
                    path.unlink()
                _Packing(path, source, frame, on_error, about).run(num_workers, on_chunk)
    except OSError as error:
        raise RefusedInput(f"{path} cannot be written ({error.strerror}): choose another data.cache.") from error


def available_cores() -> int:
    """Returns the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class _Packing:
    """State of packing. The journal has one line for each chunk that was completely written to the `.part` file."""

    def __init__(self, path: Path, source: Source, frame: Frame, on_error: OnError, about: dict[str, Any]) -> None:
        self.path, self.source, self.frame, self.on_error, self.about = path, source, frame, on_error, about
        self.part, self.journal = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.journal")
        self.shape = frame.shape
        self.done, self.checksum = 0, 0
        self.labels, self.index = array("q"), array("q")  # 16 bytes per image: all that grows with their number
        self.skipped: list[str] = []
        self.notes: Counter[str] = Counter()

    def run(self, num_workers: int, on_chunk: Callable[[], None]) -> None:
        start, begun = time.perf_counter(), self._resume()
        with self.part.open("ab") as file, self.journal.open("a") as journal, progress_bar() as progress:
            bar = progress.add_task(f"packing {self.path.stem}", total=len(self.source), completed=begun)
            notices = Notices(len(self.source), begun, start) if progress.disable else None
            for chunk in self._chunks(num_workers):
                images = chunk.pop("images")
                file.write(images)
                file.flush()  # before the journal records it
                chunk["checksum"] = zlib.crc32(images, self.checksum)
                journal.write(json.dumps(chunk) + "\n")
                journal.flush()
                self._take(chunk)
                progress.update(bar, completed=self.done)
                if notices is not None:
                    notices.update(self.done, time.perf_counter())
                on_chunk()
            self._finish(file)
        os.replace(self.part, self.path)
        self.journal.unlink()
        self._report(time.perf_counter() - start, self.done - begun)

    def _take(self, chunk: dict[str, Any]) -> None:
        self.done, self.checksum = chunk["done"], chunk["checksum"]
        self.labels.extend(chunk["labels"])
        self.index.extend(chunk["index"])
        self.skipped += chunk["skipped"]
        self.notes.update(chunk["notes"])

    def _resume(self) -> int:
        """Reads the journal, truncates unconfirmed and damaged data, and returns how many items are packed."""
        if not self.part.exists() or not self.journal.exists():
            self.part.unlink(missing_ok=True)
            self.journal.unlink(missing_ok=True)
            return 0
        lines = self.journal.read_text().splitlines(keepends=True)
        kept = 0
        with self.part.open("rb") as file:
            for line in lines:
                chunk: dict[str, Any] = {}
                with suppress(json.JSONDecodeError):  # an incomplete line
                    chunk = json.loads(line)
                images = file.read(len(chunk.get("index", [])) * int(np.prod(self.shape)))
                if not line.endswith("\n") or zlib.crc32(images, self.checksum) != chunk.get("checksum"):
                    break
                self._take(chunk)
                kept += len(line.encode())
        os.truncate(self.journal, kept)
        os.truncate(self.part, len(self.index) * int(np.prod(self.shape)))
        return self.done

    def _chunks(self, num_workers: int) -> Iterator[dict[str, Any]]:
        """Yields chunks in order while processes prepare the next few, with constant memory."""
        starts = range(self.done, len(self.source), _CHUNK)
        workers = num_workers if len(starts) > num_workers else 0
        loader: DataLoader[dict[str, Any]] = DataLoader(
            _Chunks(self.source, self.frame, self.on_error),
            sampler=starts,
            batch_size=None,
            num_workers=workers,
            collate_fn=_unchanged,  # sends bytes through a pipe, since shared memory is often small
            generator=torch.Generator(),  # seeding the workers must not change global random numbers
            prefetch_factor=2 if workers else None,
            multiprocessing_context=_start_method() if workers else None,
        )
        for chunk in loader:
            if "refused" in chunk:
                raise RefusedInput(chunk["refused"])
            yield chunk

    def _finish(self, file: Any) -> None:
        if not self.index:
            raise RefusedInput(f"{self.about['source']}: none of its {len(self.source)} images can be read.")
        labels, index = (np.asarray(numbers, "<i8") for numbers in (self.labels, self.index))
        about = {
            "format_version": FORMAT_VERSION,
            "shape": [len(labels), *self.shape],
            "checksum": zlib.crc32(labels.data, self.checksum),
            "skipped": self.skipped,
            "notes": dict(self.notes),
            **self.about,
        }
        text = json.dumps(about).encode()
        file.write(labels.tobytes() + index.tobytes() + text + TAIL.pack(zlib.crc32(text), len(text), MARK))
        file.flush()
        os.fsync(file.fileno())

    def _report(self, seconds: float, num: int) -> None:
        speed = f" in {seconds:.1f} s, {num / seconds:.0f} a second" if num else ""
        lines = [f"packed {len(self.index)} images{speed}: {self.path}"]
        lines += [f"  {count} {note}" for note, count in sorted(self.notes.items())]
        logger.info("\n".join(lines))
        if self.skipped:
            logger.warning("\n".join(list_of_skipped(self.skipped)))


class _Chunks(Dataset):
    """Chunks of images by the index of their first item in the source."""

    def __init__(self, source: Source, frame: Frame, on_error: OnError) -> None:
        self.source, self.frame, self.on_error = source, frame, on_error

    def __getitem__(self, start: int) -> dict[str, Any]:
        images, labels, index, skipped = bytearray(), [], [], []
        notes: Counter[str] = Counter()
        stop = min(start + _CHUNK, len(self.source))
        for item in range(start, stop):
            said: list[str] = []
            try:
                name = self.source.name(item)
                image, more = self.frame.fit(self.source.picture(item, said), name)
                label = self.source.label(item)
            except RefusedInput as error:
                if self.on_error == "raise":
                    return {"refused": f"{str(error).rstrip('.')}; data.on_error=skip leaves bad files out."}
                skipped.append(str(error))
                continue
            images += image.tobytes()
            labels.append(label)
            index.append(item)
            notes.update([*said, *more])
        return {
            "images": bytes(images),
            "done": stop,
            "labels": labels,
            "index": index,
            "skipped": skipped,
            "notes": dict(notes),
        }


def _unchanged(chunk: Any) -> Any:
    return chunk


def _start_method() -> str | None:
    # a new interpreter would import for seconds; forking is safe, since workers neither use torch kernels nor a device
    return "fork" if sys.platform == "linux" else None


def list_of_skipped(skipped: Sequence[str]) -> list[str]:
    """Returns lines that name the skipped files, or none."""
    if not skipped:
        return []
    more = len(skipped) - _LISTED
    lines = [f"  {len(skipped)} left out (data.on_error=skip):", *(f"    {line}" for line in skipped[:_LISTED])]
    return lines + ([f"    and {more} more"] if more > 0 else [])
