"""Source of images from datasets on the Hugging Face Hub, and from all files that the package `datasets` reads."""

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
    """Source of encoded images in the rows of a dataset.

    Args:
        rows: dataset of the package `datasets`.
        name: name of the dataset.
        picture: name of the column that contains the images.
        label: name of the column that contains the classes, or None. Classes are integers from 0, or names, which are
            numbered in alphabetical order.
        decoding: see `Decoding`.
        left_out: see `Source`.
    """

    def __init__(
        self, rows: Any, name: str, picture: str, label: str | None, decoding: Decoding, left_out: list[str]
    ) -> None:
        self.rows, self._name, self.column, self.decoding, self.left_out = rows, name, picture, decoding, left_out
        self.labels, self.class_names = _numbers(list(rows[label])) if label else (None, ())
        if label and hasattr(rows.features[label], "names"):  # a `ClassLabel`
            self.class_names = rows.features[label].names

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


def _numbers(labels: list[Any]) -> tuple[list[Any], list[str]]:
    """Replaces class names by their indices in alphabetical order, and returns the names.

    Labels that are not text stay unchanged.
    """
    names: list[Any] = [composed(label) if isinstance(label, str) else label for label in labels]
    known = sorted({name for name in names if isinstance(name, str)})
    numbers = {name: number for number, name in enumerate(known)}
    return [numbers.get(name, name) for name in names], known


class Huggingface(PackedData):
    """Images from a dataset with an image column, which the package `datasets` reads (extra `huggingface`).

    Without network access, set a file format and local files: `data.name=parquet data.files=PATH`. If the contents of
    local files change, they are packed again. A dataset on the Hub is packed once for each `revision`. If no revision
    is set and the dataset on the Hub has changed, delete the packed images.

    Args:
        name: name of the dataset on the Hub, path of a local folder, or a file format such as parquet or imagefolder,
            together with `files`.
        files: path of a file or folder if `name` is a file format.
        split: split of the dataset.
        picture_column: name of the column that contains the images.
        label_column: name of the column that contains the classes, as integers from 0 or as names; null trains without
            classes.
        revision: revision of the dataset on the Hub. A commit hash makes runs reproducible.
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
        """Number of classes, according to the labels of the packed images."""
        return int(self.packed.labels.max()) + 1 if self.label_column else 0

    @property
    def class_names(self) -> list[str]:  # type: ignore[override]
        names: list[str] = self.packed.about.get("class_names", [])
        return names[: self.num_classes]  # a split need not have the last classes

    def source(self) -> Source:
        datasets = import_extra("datasets", "huggingface")
        key = "data_dir" if self.files and os.path.isdir(self.files) else "data_files"
        where = {key: self.files} if self.files else {}
        columns = [self.picture_column, *([self.label_column] if self.label_column else [])]
        with refusing(f"data.name={self.dataset_name}"):
            # `datasets` caches local files by path and time, and can miss a change of their contents. The download is
            # therefore forced. It is not repeated, because this method is called only for contents that are not packed
            # yet.
            mode = "force_redownload" if self._local_files() else None
            rows = datasets.load_dataset(
                self.dataset_name, split=self.split, revision=self.revision, download_mode=mode, **where
            )
            rows = rows.select_columns(columns).cast_column(self.picture_column, datasets.Image(decode=False))
        names = self.dataset_name, self.picture_column, self.label_column
        return _Rows(rows, *names, self.frame.decoding, self._left_out())

    def _left_out(self) -> list[str]:
        """Returns a line of text for each image in a local folder that the package `datasets` skips.

        The package skips images with an extension that it does not know.

        Raises:
            RefusedInput: the package skips an image, and `on_error` is `raise`.
        """
        folder = Path(self.files or "")
        if self.dataset_name != "imagefolder" or not (self.files and folder.is_dir()):
            return []
        reader = import_extra("datasets.packaged_modules.imagefolder.imagefolder", "huggingface").ImageFolder
        found = find_images(folder, nested=True)
        images = [path for path in (*found.images, *found.unread) if path.suffix.lower() not in reader.EXTENSIONS]
        if images:
            problem = f"data.name=imagefolder does not read {len(images)} images in {folder}, such as {images[0]}"
            leave_out(f"{problem} (data=folder reads all formats that Pillow supports)", self.on_error)
        return [f"{path.relative_to(folder)} is not read by data.name=imagefolder." for path in images]

    def identity(self) -> dict[str, Any]:
        names = ("dataset_name", "split", "revision", "picture_column", "label_column")
        identity: dict[str, Any] = {name: getattr(self, name) for name in names}
        files = self._local_files()
        if not files:
            return identity | {"files": self.files}
        if os.path.isdir(self.dataset_name):  # `files` selects files in this folder
            identity |= {"dataset_name": "", "selected": self.files}
        root = Path(os.path.commonpath([path.parent for path in files]))
        relative = [path.relative_to(root).as_posix() for path in files]  # the names of folders can be classes
        return identity | {"files": digest_of_files(files, self.cache), "names": digest_of_parts(names=relative)}

    def _local_files(self) -> list[Path]:
        """Returns the sorted local files that the package `datasets` might read."""
        folder = self.dataset_name if os.path.isdir(self.dataset_name) else ""
        return sorted({*_files_at(self.files or ""), *_files_at(folder)})


def _files_at(files: str) -> list[Path]:
    """Returns the local files at a path, in a folder, or matching a glob pattern."""
    inside = Path(files).rglob("*") if files and os.path.isdir(files) else map(Path, glob(files, recursive=True))
    return [path for path in inside if path.is_file()]
