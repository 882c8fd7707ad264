"""Reads the image files of a folder or archive as uint8 batches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size
from lit_gans.data.base import resized
from lit_gans.data.decoding import IN_16_BITS, MAX_PIXELS, read_picture
from lit_gans.data.files import ARRAYS, find_images
from lit_gans.data.images import Frame

logger = logging.getLogger(__name__)

# sheets of several images, which commands write to the same folder as single samples
SHEETS = ("grid.png", "interpolation.png", "directions.png", "projected.png")


class PictureFolder:
    """Reads the image files of a folder and its subfolders lazily and sorted by name, as images with three channels.

    Files in `SHEETS` are skipped, such as `grid.png`, which `lit-gans sample` writes next to the images.

    Args:
        folder: path of the folder, or of an archive or shards; see `find_images`.
        image_size: height and width to which images are resized. If None, all images must have the same size.
        value_range, max_pixels: see `Frame`.

    Raises:
        RefusedInput: the folder does not exist, contains no image files, contains arrays, or contains images that
            cannot be read.
    """

    def __init__(
        self,
        folder: str | Path,
        image_size: Size | None = None,
        value_range: tuple[float, float] | None = None,
        max_pixels: int | None = MAX_PIXELS,
    ) -> None:
        self.folder, self.image_size = Path(folder), None if image_size is None else as_size(image_size)
        self.frame = Frame(None, 3, value_range=value_range, max_pixels=max_pixels, keys="")
        found = find_images(self.folder, nested=True)
        files = found.all_readable()
        arrays = [path for path in files if path.suffix.lower() in ARRAYS]
        if arrays:
            raise RefusedInput(
                f"{len(arrays)} of the {len(files)} files in {folder} are arrays, such as {arrays[0]}. To measure"
                " arrays, pass their checkpoint: checkpoint=PATH instead of fake=."
            )
        sheets = [path.name for path in files if path.name in SHEETS]
        self.paths = [path for path in files if path.name not in SHEETS]
        if not self.paths:
            raise RefusedInput(f"{folder} contains no images except {', '.join(SHEETS)}, which are skipped.")
        if sheets:
            logger.info("%s: skipping %s (sheets of several images)", folder, ", ".join(sheets))
        below = [path for path in self.paths if len(found.inside(path).parts) > 1]
        if 0 < len(below) < len(self.paths):
            message = "%s: %d of its %d images are in subfolders, such as %s, and are measured, too"
            logger.warning(message, folder, len(below), len(self.paths), below[0])
        self._is_checked = False

    def __len__(self) -> int:
        return len(self.paths)

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b 3 h w"]]:
        """Yields each image once, in uint8 batches of shape (b, 3, h, w).

        Args:
            batch_size: number of images in a batch. The last batch can be smaller.
            start, stop: only the images at positions `start` to `stop - 1` are read. If `stop` is None, all images from
                `start` on are read.

        Raises:
            RefusedInput: a file cannot be read, or an image does not have the size of the first image.
        """
        notes: list[str] = []
        low, high, first, selected = 255, 0, self._read(self.paths[0], []), self.paths[start:stop]
        for position in range(0, len(selected), batch_size):
            paths = selected[position : position + batch_size]
            batch = [self._read(path, notes) for path in paths]
            for path, image in zip(paths, batch, strict=True):
                if image.shape != first.shape:
                    size, expected = (f"{shape[3]}x{shape[2]}" for shape in (image.shape, first.shape))
                    raise RefusedInput(
                        f"{path} has size {size}, but {self.paths[0].name} has size {expected}: add image_size=N or"
                        " image_size=[HEIGHT,WIDTH] to resize all images."
                    )
            images = torch.cat(batch)
            low, high = min(low, int(images.min())), max(high, int(images.max()))
            yield images
        if len(selected) == len(self.paths) and not self._is_checked:
            self._is_checked = True
            self._warn_about_values(Counter(notes), low, high)

    def _warn_about_values(self, notes: Counter[str], low: int, high: int) -> None:
        """Logs a warning if values of the files were clipped, or if 16-bit files use only a small range of values."""
        for note, num in notes.items():
            if note.endswith("clipped"):
                logger.warning("%s: %d files %s", self.folder, num, note)
        if self.frame.value_range is not None and high - low < 128:
            logger.warning(
                "%s: with value_range=%s, its images only have values from %d to %d, of 0 to 255: use a range for its"
                " files.",
                self.folder,
                list(self.frame.value_range),
                low,
                high,
            )
        elif notes[IN_16_BITS] and high - low < 128:
            logger.warning(
                "%s: the values of its 16-bit files range only from %d to %d after conversion to 0 to 255: set"
                " value_range=[LOW,HIGH] to the values that become black and white.",
                self.folder,
                low,
                high,
            )

    def _read(self, path: Path, notes: list[str]) -> UInt8[Tensor, "1 3 h w"]:
        picture = read_picture(path, notes, self.frame.decoding)
        image = torch.from_numpy(self.frame.fit(picture, str(path), notes))[None]
        return image if self.image_size is None else resized(image, self.image_size)

    def __repr__(self) -> str:
        return f"{self.folder} ({len(self)} pictures)"
