"""Folders of images of any size: flat, with one folder for each class, or with a CSV file of classes."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.data.digests import digest_of_files, digest_of_parts
from lit_gans.data.images import Picture, images_in, read_picture
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import OnError, Source

logger = logging.getLogger(__name__)


class Files(Source):
    """Source of image files.

    Args:
        paths: paths of the files.
        labels: class of each file; None without classes.
        as_values: whether to read depth and channels as they are stored, rather than 8-bit pictures.
    """

    def __init__(self, paths: list[Path], labels: list[int] | None = None, as_values: bool = False) -> None:
        self.paths, self.labels, self.as_values = paths, labels, as_values

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def picture(self, index: int, notes: list[str]) -> Picture:
        return read_picture(self.paths[index], self.as_values, notes)


class Folder(PackedData):
    """Images in a folder and all its subfolders. If the folder itself contains no images, its immediate subfolders are
    the classes, sorted by name.

    Args:
        root: path of the folder.
        labels: path of a CSV file with the columns `file`, relative to `root`, and `class`, instead of subfolders;
            classes that are numbers are sorted as numbers, others by name.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, contains no images, or contains a class without images; or the CSV file
            lacks images, names others, or names one twice.
    """

    possible_channels = None
    identified_by_content = True

    def __init__(self, root: str, labels: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = Path(root).expanduser()
        paths = images_in(self.root, nested=True)
        if labels is None:
            self.classes = self._classes(paths)
            found = {path: path.relative_to(self.root).parts[0] for path in paths}
        else:
            found = classes_in(Path(labels).expanduser(), self.root, paths, self.on_error)
            paths = list(found)
            names = {*found.values()}
            self.classes = sorted(names, key=int if all(name.isdecimal() for name in names) else None)
        self.labels, self.num_classes = labels, len(self.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self._files = Files(paths, [numbers.get(found[path], 0) for path in paths], self.frame.takes_values)
        if self.class_weights is not None:
            self.weights_of_classes()  # raises before anything is packed

    @property
    def class_names(self) -> list[str]:
        return self.classes

    def _classes(self, paths: list[Path]) -> list[str]:
        if any(path.parent == self.root for path in paths):
            return []
        filled = {path.relative_to(self.root).parts[0] for path in paths}
        folders = {path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(".")}
        empty = sorted(folders - filled)
        if empty:
            leave_out(
                f"{len(empty)} of {len(folders)} class folders contain no images, such as {self.root / empty[0]}",
                self.on_error,
            )
        return sorted(filled)

    def source(self) -> Files:
        return self._files

    def identity(self) -> dict[str, Any]:
        """Returns the digests of the contents of all files and of their classes, so that other files and classes are
        packed again. Moved and renamed files are not packed again.
        """
        return {
            "files": digest_of_files(self._files.paths, self.cache),
            "labels": digest_of_parts(labels=self._files.labels),
        }


def classes_in(table: Path, root: Path, paths: list[Path], on_error: OnError) -> dict[Path, str]:
    """Returns the class of each image from a CSV file with the columns `file` and `class`.

    Args:
        table: path of the CSV file.
        root: folder to which its file names are relative.
        paths: images in the folder.
        on_error: `skip` leaves out images without a class, and rows of files that do not exist.

    Raises:
        RefusedInput: the file cannot be read, a column is missing, or the rows are not those of the images.
    """
    with refusing(f"data.labels={table} cannot be read"), table.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), list(reader.fieldnames or [])
    if not {"file", "class"} <= {*columns}:
        raise RefusedInput(
            f"data.labels={table}: its columns are {', '.join(columns) or 'missing'}, expected file and class in the"
            " first line."
        )
    pairs = [(root / (row["file"] or ""), (row["class"] or "").strip()) for row in rows]
    found = {path: name for path, name in pairs if name}
    times = Counter(path for path, _ in pairs)
    if len(times) < len(rows):
        raise RefusedInput(
            f"data.labels={table}: {len(rows) - len(times)} of its {len(rows)} rows name a file again, such as"
            f" {os.path.relpath(times.most_common(1)[0][0], root)}: each image needs one class."
        )
    existing = set(paths)
    unknown, without = [path for path in found if path not in existing], [path for path in paths if path not in found]
    for bad, what in (
        (unknown, f"{len(unknown)} of its {len(rows)} rows name no image in {root}"),
        (without, f"{len(without)} of the {len(paths)} images in {root} have no class there"),
    ):
        if bad:
            leave_out(f"data.labels={table}: {what}, such as {os.path.relpath(bad[0], root)}", on_error)
    return {path: found[path] for path in paths if path in found}


def leave_out(what: str, on_error: OnError) -> None:
    """Raises `RefusedInput` about files, or logs that they are left out."""
    if on_error == "raise":
        raise RefusedInput(f"{what}; data.on_error=skip leaves them out.")
    logger.warning("%s; left out", what)


def part_of(root: Path, held_out: bool) -> Path:
    """Returns the folder `train`, or the held-out `val` or `test`, in a folder; the folder itself if it has none."""
    names = ("val", "test", "train") if held_out else ("train",)
    return next((root / name for name in names if (root / name).is_dir()), root)
