"""Folders of images of any size: flat, with one folder for each class, or with a CSV file of classes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from lit_gans.common.names import composed
from lit_gans.data.decoding import Decoding, Picture, read_picture
from lit_gans.data.digests import digest_of_files, digest_of_parts
from lit_gans.data.files import find_images, is_no_folder_of_images, leave_out
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.labels import classes_in

logger = logging.getLogger(__name__)


class Files(Source):
    """Source of image files.

    Args:
        paths: paths of the files.
        labels: class of each file; None without classes.
        decoding: see `Decoding`.
        left_out: see `Source`.
    """

    def __init__(
        self,
        paths: list[Path],
        labels: list[int] | None = None,
        decoding: Decoding = Decoding(),
        left_out: Sequence[str] = (),
    ) -> None:
        self.paths, self.labels, self.decoding, self.left_out = paths, labels, decoding, left_out

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def picture(self, index: int, notes: list[str]) -> Picture:
        return read_picture(self.paths[index], notes, self.decoding)


class Folder(PackedData):
    """Images in a folder and all its subfolders. If the folder itself contains no images, its immediate subfolders are
    the classes, sorted by name.

    Args:
        root: path of the folder.
        labels: path of a CSV file with the columns `file`, relative to `root`, and `class`, instead of subfolders;
            classes that are numbers are sorted as numbers, others by name. File names may differ from those in the
            folder in case, Unicode form and slashes.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, contains no images, images that cannot be read, or a class without
            images; or the CSV file lacks images, names others, or names one twice.
    """

    possible_channels = None
    identified_by_content = True

    def __init__(self, root: str, labels: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = Path(root).expanduser()
        images = find_images(self.root, nested=True)
        paths, left_out = images.images, images.left_out(self.on_error, self.root)
        if labels is None:
            self.classes = self._classes(paths)
            found = {path: composed(path.relative_to(self.root).parts[0]) for path in paths}
        else:
            found, without = classes_in(Path(labels).expanduser(), self.root, paths, self.on_error)
            paths, left_out = list(found), left_out + without
            self.classes = _in_order({*found.values()})
        self.labels, self.num_classes = labels, len(self.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self._files = Files(paths, [numbers.get(found[path], 0) for path in paths], self.frame.decoding, left_out)
        if self.class_weights is not None:
            self.weights_of_classes()  # raises before anything is packed

    @property
    def class_names(self) -> list[str]:
        return self.classes

    def _classes(self, paths: list[Path]) -> list[str]:
        direct = [path for path in paths if path.parent == self.root]
        if direct:
            if len(direct) < len(paths):
                what = "%s contains images itself, such as %s: its subfolders are no classes"
                logger.info(what, self.root, direct[0].name)
            return []
        # composed, so that names from macOS are the same classes, in the same order
        filled = {composed(path.relative_to(self.root).parts[0]) for path in paths}
        folders = (path for path in self.root.iterdir() if path.is_dir() and not is_no_folder_of_images(path))
        names = {composed(path.name): path for path in folders}
        empty = sorted(names.keys() - filled)
        if empty:
            leave_out(
                f"{len(empty)} of {len(names)} class folders contain no images, such as {names[empty[0]]}",
                self.on_error,
            )
        return sorted(filled)

    def source(self) -> Files:
        return self._files

    def identity(self) -> dict[str, Any]:
        """Returns the digests of the contents of all files and of their classes, so that other files and classes are
        packed again, and a digest of the files that are left out. Moved and renamed files are not packed again.
        """
        return {
            "files": digest_of_files(self._files.paths, self.cache),
            "labels": digest_of_parts(labels=self._files.labels),
            "left_out": digest_of_parts(lines=self._files.left_out),
        }


def _in_order(names: set[str]) -> list[str]:
    """Returns names by the numbers that they are, and equal numbers by name, or all by name if one is no number."""
    ordered = sorted(names)
    with suppress(InvalidOperation):
        numbers = {name: Decimal(name) for name in ordered}  # exact, of any length
        if all(number.is_finite() and "_" not in name for name, number in numbers.items()):
            ordered.sort(key=numbers.__getitem__)
    return ordered


def part_of(root: Path, held_out: bool) -> Path:
    """Returns the folder `train`, or the held-out `val` or `test`, in a folder; the folder itself if it has none."""
    names = ("val", "test", "train") if held_out else ("train",)
    return next((root / name for name in names if os.path.isdir(root / name)), root)
