"""Image files of a folder as uint8 batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size
from lit_gans.data.base import resized
from lit_gans.data.images import PICTURES, Frame, images_in, read_image

SHEETS = ("grid.png", "interpolation.png", "directions.png", "projected.png")  # what commands write beside the samples


class PictureFolder:
    """Reads the image files of a folder lazily, sorted by name, with three channels.

    Skips `SHEETS`, such as the `grid.png` that `lit-gans sample` writes next to the images.

    Args:
        folder: path of the folder; subfolders are not read.
        image_size: height and width that images are resized to; None requires all images to have the same size.

    Raises:
        RefusedInput: the folder does not exist or contains no image files.
    """

    def __init__(self, folder: str | Path, image_size: Size | None = None) -> None:
        self.folder, self.image_size = Path(folder), None if image_size is None else as_size(image_size)
        self.paths = [path for path in images_in(self.folder, endings=PICTURES) if path.name not in SHEETS]
        if not self.paths:
            arrays = any(self.folder.glob("*.npy"))
            hint = " Arrays are measured from their checkpoint: checkpoint=PATH instead of fake=." if arrays else ""
            raise RefusedInput(f"{folder} contains no images beside {', '.join(SHEETS)}, which are left out.{hint}")

    def __len__(self) -> int:
        return len(self.paths)

    def real_batches(
        self, batch_size: int = 256, start: int = 0, stop: int | None = None
    ) -> Iterator[UInt8[Tensor, "b 3 h w"]]:
        """Yields every image once, uint8 (b, 3, h, w).

        Args:
            batch_size: number of images in a batch; the last batch may be smaller.
            start, stop: reads only images from position `start` to before `stop`; None reads to the end.

        Raises:
            RefusedInput: a file cannot be read, or its size differs from that of the first file.
        """
        first, own = self._read(self.paths[0]), self.paths[start:stop]
        for position in range(0, len(own), batch_size):
            paths = own[position : position + batch_size]
            batch = [self._read(path) for path in paths]
            for path, image in zip(paths, batch, strict=True):
                if image.shape != first.shape:
                    one, other = (f"{shape[3]}x{shape[2]}" for shape in (image.shape, first.shape))
                    raise RefusedInput(
                        f"{path} is {one}, {self.paths[0].name} {other}: add image_size=N or"
                        " [HEIGHT,WIDTH] to resize all."
                    )
            yield torch.cat(batch)

    def _read(self, path: Path) -> UInt8[Tensor, "1 3 h w"]:
        image = read_image(path, Frame(None, 3))
        return image if self.image_size is None else resized(image, self.image_size)

    def __repr__(self) -> str:
        return f"{self.folder} ({len(self)} pictures)"
