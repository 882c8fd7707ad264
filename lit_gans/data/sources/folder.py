"""Folders of images of any size, flat or with one folder for each class."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import images_in, open_picture
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source

logger = logging.getLogger(__name__)


class Files(Source):
    """Source of image files.

    Args:
        paths: paths of the files.
        labels: class of each file.
    """

    def __init__(self, paths: list[Path], labels: list[int]) -> None:
        self.paths, self.labels = paths, labels

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        return open_picture(self.paths[index], str(self.paths[index]), notes)


class _ClassFolders(PackedData):
    """Images in a folder and all its subfolders; a base class, since only classes without subclasses are options."""

    def __init__(self, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = Path(root).expanduser()
        paths = images_in(self.root, nested=True)
        self.classes = self._classes(paths)
        self.num_classes = len(self.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self._files = Files(paths, [numbers.get(path.relative_to(self.root).parts[0], 0) for path in paths])

    def _classes(self, paths: list[Path]) -> list[str]:
        if any(path.parent == self.root for path in paths):
            return []
        filled = {path.relative_to(self.root).parts[0] for path in paths}
        folders = {path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(".")}
        empty = sorted(folders - filled)
        if empty and self.on_error == "raise":
            raise RefusedInput(
                f"{self.root / empty[0]} contains no images, {len(empty)} of {len(folders)} class folders are empty:"
                " remove them, or leave them out with data.on_error=skip."
            )
        if empty:
            logger.warning("%d class folders without images left out: %s", len(empty), ", ".join(empty))
        return sorted(filled)

    def source(self) -> Files:
        return self._files

    def identity(self) -> dict[str, Any]:
        """Returns a hash of the names, sizes and times of all files, so that changed files are packed again."""
        return identity_of(self.root, self._files.paths)


class Folder(_ClassFolders):
    """Images in a folder and all its subfolders. If the folder itself contains no images, its immediate subfolders are
    the classes, sorted by name.

    Args:
        root: path of the folder.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, contains no images, or contains a class without images.
    """


class Imagenet(_ClassFolders):
    """ImageNet (Russakovsky et al. 2015) as a folder of class folders, in `train/` or `val/`.

    Args:
        root: path of the folder.
        split: name of the folder inside `root`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, or contains no class folders with images.
    """

    def __init__(self, *, root: str, split: Literal["train", "val"] = "train", **kwargs: Any) -> None:
        inside = Path(root).expanduser() / split
        super().__init__(str(inside), **kwargs)
        if not self.classes:
            raise RefusedInput(f"data.root={root}: {inside} itself holds images, not one folder for each class.")


def identity_of(root: Path, paths: list[Path]) -> dict[str, Any]:
    """Returns the folder and a hash of the names, sizes and times of these files in it."""
    found = hashlib.blake2b(digest_size=16)
    for path in paths:
        stat = path.lstat()
        found.update(os.fsencode(f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\0"))
    return {"root": str(root.resolve()), "files": found.hexdigest()}
