"""Datasets of the Hugging Face Hub, and any files that the package `datasets` reads."""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.common.names import composed
from lit_gans.data.decoding import Decoding, Picture, read_picture
from lit_gans.data.digests import digest_of_files, digest_of_parts
from lit_gans.data.files import find_images, leave_out
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source


class _Rows(Source):
    """Rows of a dataset with encoded images.

    Args:
        rows: dataset of the package `datasets`.
        name: name of the dataset.
        picture: column of the images.
        label: column of the classes, if any: numbers from 0, or names, which are numbered in their order.
        decoding: see `Decoding`.
        left_out: see `Source`.
    """

    def __init__(
        self, rows: Any, name: str, picture: str, label: str | None, decoding: Decoding, left_out: list[str]
    ) -> None:
        self.rows, self._name, self.column, self.decoding, self.left_out = rows, name, picture, decoding, left_out
        self.labels = _numbers(list(rows[label])) if label else None

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return f"{self._name} row {index}"

    def label(self, index: int) -> int:
        label = 0 if self.labels is None else self.labels[index]
        if not isinstance(label, int) or label < 0:
            raise RefusedInput(f"{self.name(index)} has no class: its label is {label}, expected a name or 0, 1, ...")
        return label

    def picture(self, index: int, notes: list[str]) -> Picture:
        encoded = self.rows[index][self.column]
        if encoded is None:
            raise RefusedInput(f"{self.name(index)} has no image.")
        if encoded["bytes"] is not None:
            return read_picture(encoded["bytes"], notes, self.decoding, self.name(index))
        return read_picture(Path(encoded["path"]), notes, self.decoding, f"{self.name(index)} ({encoded['path']})")


def _numbers(labels: list[Any]) -> list[Any]:
    """Returns labels with numbers instead of names, in the order of the names."""
    names: list[Any] = [composed(label) if isinstance(label, str) else label for label in labels]
    known = sorted({name for name in names if isinstance(name, str)})
    numbers = {name: number for number, name in enumerate(known)}
    return [numbers.get(name, name) for name in names]


class Huggingface(PackedData):
    """A dataset with a column of images, read by the package `datasets` (extra `huggingface`).

    Without a network, give a format and files: `data.name=parquet data.files=PATH`. Other contents of these files are
    packed again. A dataset of the Hub is packed once for each `revision`: without one, delete the packed images after
    the dataset has changed.

    Args:
        name: name of the dataset on the Hub, or a format such as parquet or imagefolder together with `files`.
        files: file or folder, if `name` is a format.
        split: split of the dataset.
        picture_column: column of the images.
        label_column: column of the classes, numbers from 0 or names; null trains without classes.
        revision: revision of the dataset on the Hub; a commit hash makes runs reproducible.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the package is missing, the dataset cannot be read, or a column does not exist.
    """

    def __init__(
        self,
        *,
        name: str,
        files: str | None = None,
        split: str = "train",
        picture_column: str = "image",
        label_column: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dataset_name, self.files, self.split, self.revision = name, files, split, revision
        self.picture_column, self.label_column = picture_column, label_column

    @property
    def num_classes(self) -> int:
        """Number of classes, read from the packed images."""
        return int(self.packed.labels.max()) + 1 if self.label_column else 0

    def source(self) -> Source:
        datasets = import_extra("datasets", "huggingface")
        key = "data_dir" if self.files and os.path.isdir(self.files) else "data_files"
        where = {key: self.files} if self.files else {}
        columns = [self.picture_column, *([self.label_column] if self.label_column else [])]
        with refusing(f"data.name={self.dataset_name}"):
            # `datasets` caches local files by path and time; this is called only for contents that are not packed yet
            mode = "force_redownload" if _files_at(self.files or "") else None
            rows = datasets.load_dataset(
                self.dataset_name, split=self.split, revision=self.revision, download_mode=mode, **where
            )
            rows = rows.select_columns(columns).cast_column(self.picture_column, datasets.Image(decode=False))
        names = self.dataset_name, self.picture_column, self.label_column
        return _Rows(rows, *names, self.frame.decoding, self._left_out())

    def _left_out(self) -> list[str]:
        """Returns a line about each image in a local folder whose extension the package `datasets` does not know.

        Raises:
            RefusedInput: there is such an image, and `on_error` is `raise`.
        """
        folder = Path(self.files or "")
        if self.dataset_name != "imagefolder" or not (self.files and folder.is_dir()):
            return []
        reader = import_extra("datasets.packaged_modules.imagefolder.imagefolder", "huggingface").ImageFolder
        found = find_images(folder, nested=True)
        images = [path for path in (*found.images, *found.unread) if path.suffix.lower() not in reader.EXTENSIONS]
        if images:
            what = f"data.name=imagefolder does not read {len(images)} images in {folder}, such as {images[0]}"
            leave_out(f"{what} (data=folder reads all formats of Pillow)", self.on_error)
        return [f"{path.relative_to(folder)} is not read by data.name=imagefolder." for path in images]

    def identity(self) -> dict[str, Any]:
        names = ("dataset_name", "split", "revision", "picture_column", "label_column")
        identity: dict[str, Any] = {name: getattr(self, name) for name in names}
        found = _files_at(self.files or "")
        if not found:
            return identity | {"files": self.files}
        root = Path(os.path.commonpath([path.parent for path in found]))
        relative = [path.relative_to(root).as_posix() for path in found]  # of which folders may be classes
        return identity | {"files": digest_of_files(found, self.cache), "names": digest_of_parts(names=relative)}


def _files_at(files: str) -> list[Path]:
    """Returns the existing local files that a file, folder or pattern names, sorted."""
    inside = Path(files).rglob("*") if files and os.path.isdir(files) else map(Path, glob(files, recursive=True))
    return sorted(path for path in inside if path.is_file())
