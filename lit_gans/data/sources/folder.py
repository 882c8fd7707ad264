"""Source of images in a folder: without classes, with one subfolder per class, or with a CSV file of classes."""

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
        labels: class index of each file; None if there are no classes.
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
    """Images in a folder and all its subfolders.

    If the folder itself contains no images, its immediate subfolders are the classes, sorted by name.

    Args:
        root: path of the folder.
        labels: path of a CSV file that defines the classes instead of the subfolders. The file has the columns `file`
            (a path relative to `root`) and `class`. If all classes are numbers, they are sorted numerically, otherwise
            by name. File names in the CSV file can differ from the names in the folder in case, Unicode form and
            slashes.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, contains no images or unreadable images, or a class has no images. Also
            raised if the CSV file does not name every image exactly once, or names a file that does not exist.
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
            self.weights_of_classes()  # raises an error before the images are packed

    @property
    def class_names(self) -> list[str]:
        return self.classes

    def _classes(self, paths: list[Path]) -> list[str]:
        direct = [path for path in paths if path.parent == self.root]
        if direct:
            if len(direct) < len(paths):
                message = "%s directly contains images, such as %s: its subfolders are not used as classes"
                logger.info(message, self.root, direct[0].name)
            return []
        # names are in composed Unicode form, so that the classes and their order are the same on macOS
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
        """Returns digests of the images' contents, of their classes, and of the list of skipped files.

        The images are packed again if the contents or the classes change, but not if files are moved or renamed.
        """
        return {
            "files": digest_of_files(self._files.paths, self.cache),
            "labels": digest_of_parts(labels=self._files.labels),
            "left_out": digest_of_parts(lines=self._files.left_out),
        }


def _in_order(names: set[str]) -> list[str]:
    """Sorts names numerically if all of them are numbers, otherwise by name. Equal numbers are sorted by name."""
    ordered = sorted(names)
    with suppress(InvalidOperation):
        numbers = {name: Decimal(name) for name in ordered}  # compares numbers of any length exactly
        if all(number.is_finite() and "_" not in name for name, number in numbers.items()):
            ordered.sort(key=numbers.__getitem__)
    return ordered


def part_of(root: Path, held_out: bool) -> Path:
    """Returns the folder of the training images (`train`), or of the held-out images (`val` or `test`), in `root`.

    Without `val` and `test`, held-out images are taken from `train`. Without any of these folders, all images are taken
    from `root`.
    """
    names = ("val", "test", "train") if held_out else ("train",)
    return next((root / name for name in names if os.path.isdir(root / name)), root)
