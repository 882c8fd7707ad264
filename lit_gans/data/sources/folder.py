"""Source of images in a folder or archive, whose classes are subfolders, or are in files."""

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
from lit_gans.data.files import Found, find_images, is_no_folder_of_images, leave_out
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.labels import STYLEGAN_TABLE, VectorLabel, classes_beside, classes_in, is_stylegan_table

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
    """Images in a folder and all its subfolders, in a zip or tar archive, or in the shards of a WebDataset.

    The classes are the first that exist of: the file `labels`; the labels of a `dataset.json` in the folder, which
    StyleGAN's `dataset_tool.py` writes; the classes in the .cls or .json files beside the images, as in a WebDataset;
    the immediate subfolders, if the folder itself contains no images. Vectors are no classes. If all classes are
    numbers, they are sorted numerically, otherwise by name; subfolders are always sorted by name.

    Args:
        root: path of the folder, of an archive, or of a folder of tar archives (shards). An archive is read in place
            and gives the same images in the same order as the unpacked folder.
        labels: path of a CSV file with the columns `file` (a path relative to `root`) and `class`, or of a JSON file
            like `dataset.json`. File names in this file can differ from the names in the folder in case, Unicode form
            and slashes.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, contains no images or unreadable images, or a class has no images. Also
            raised if the labels do not name every image exactly once, or name a file that does not exist.
    """

    possible_channels = None
    identified_by_content = True

    def __init__(self, root: str, labels: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = Path(root).expanduser()
        images = find_images(self.root, nested=True)
        paths, left_out = images.images, images.left_out(self.on_error, images.folder)
        table = _table_in(images) if labels is None else Path(labels).expanduser()
        by_subfolder = table is None
        try:
            if table is not None:
                found, without = classes_in(table, images.folder, paths, self.on_error)
            else:
                found, without = classes_beside(images, self.on_error)
        except VectorLabel as error:
            if labels is not None:
                raise
            logger.warning("%s The images are read without classes.", error)
            found, without, by_subfolder = {}, [], False
        if found or without:
            paths, left_out = list(found), left_out + without
        self.classes = _in_order({*found.values()})
        if not self.classes and by_subfolder:
            self.classes = self._classes(images)
            found = {path: composed(images.inside(path).parts[0]) for path in paths}
        self.labels, self.num_classes = labels, len(self.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self._files = Files(
            paths, [numbers.get(found.get(path, ""), 0) for path in paths], self.frame.decoding, left_out
        )
        if self.class_weights is not None:
            self.weights_of_classes()  # raises an error before the images are packed

    @property
    def class_names(self) -> list[str]:  # type: ignore[override]
        return self.classes

    def _classes(self, images: Found) -> list[str]:
        """Returns the names of the immediate subfolders, or no names if the folder itself contains images."""
        direct = [path for path in images.images if len(images.inside(path).parts) == 1]
        if direct:
            if len(direct) < len(images.images):
                message = "%s directly contains images, such as %s: its subfolders are not used as classes"
                logger.info(message, self.root, direct[0].name)
            return []
        # names are in composed Unicode form, so that the classes and their order are the same on macOS
        filled = {composed(images.inside(path).parts[0]) for path in images.images}
        entries = self.root.iterdir() if self.root.is_dir() else ()  # an archive need not contain empty folders
        folders = (path for path in entries if path.is_dir() and not is_no_folder_of_images(path))
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


def _table_in(images: Found) -> Path | None:
    """Returns the path of the `dataset.json` of StyleGAN in a folder or archive, or None if there is none."""
    table = images.folder / STYLEGAN_TABLE
    if table not in images.tables:
        return None
    if is_stylegan_table(table):
        return table
    logger.warning("%s has no labels in StyleGAN's format, and is not used", table)
    return None


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
