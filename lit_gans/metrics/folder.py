"""Image files of a folder as uint8 batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_above, refuse_below
from lit_gans.data.base import LARGEST_IMAGE, resized
from lit_gans.data.images import ENDINGS, read_image

_GRID = "grid.png"  # written by `lit-gans sample` next to the single images


class PictureFolder:
    """Reads the image files of a folder lazily, sorted by name, with three channels.

    Skips `grid.png`, which `lit-gans sample` writes next to the images.

    Args:
        folder: path of the folder; subfolders are not read.
        image_size: height and width that images are resized to; None requires all images to have the same size.

    Raises:
        RefusedInput: the folder does not exist or contains no image files.
    """

    def __init__(self, folder: str | Path, image_size: int | None = None) -> None:
        refuse_below(1, image_size=image_size)
        refuse_above(LARGEST_IMAGE, image_size=image_size or 1)
        self.folder, self.image_size = Path(folder), image_size
        if not self.folder.is_dir():
            raise RefusedInput(f"{folder}: there is no such folder; give one that contains images.")
        found = (path for path in self.folder.iterdir() if path.suffix.lower() in ENDINGS)
        self.paths = sorted(path for path in found if path.name != _GRID)
        if not self.paths:
            raise RefusedInput(f"{folder} holds no images ({', '.join(ENDINGS)}).")

    def __len__(self) -> int:
        return len(self.paths)

    def real_batches(self, batch_size: int) -> Iterator[UInt8[Tensor, "b 3 h w"]]:
        """Yields every image once, uint8 (b, 3, h, w).

        Raises:
            RefusedInput: a file cannot be read, or its size differs from that of the first file.
        """
        shape = None
        for start in range(0, len(self.paths), batch_size):
            batch = []
            for path in self.paths[start : start + batch_size]:
                image = read_image(path, 3)
                image = image if self.image_size is None else resized(image, self.image_size)
                shape = shape or image.shape[2:]
                if image.shape[2:] != shape:
                    raise RefusedInput(
                        f"{path} is {_size(image.shape[2:])}, {self.paths[0].name} {_size(shape)}: add image_size=N to"
                        " resize all."
                    )
                batch.append(image)
            yield torch.cat(batch)

    def __repr__(self) -> str:
        return f"{self.folder} ({len(self)} pictures)"


def _size(shape: torch.Size) -> str:
    return f"{shape[1]}x{shape[0]}"
