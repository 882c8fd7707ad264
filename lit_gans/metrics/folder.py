"""Image files of a folder as batches of uint8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import resized
from lit_gans.data.images import ENDINGS, read_image

_GRID = "grid.png"  # which `lit-gans sample` puts beside the single images


class PictureFolder:
    """The image files of a folder in the order of their names, with three channels, read lazily.

    A `grid.png`, which `lit-gans sample` writes beside the images, is left out.

    Args:
        folder: of the files; folders inside it are not read.
        image_size: height and width that images are resized to; None requires one common size.

    Raises:
        RefusedInput: no such folder, or no image files in it.
    """

    def __init__(self, folder: str | Path, image_size: int | None = None) -> None:
        self.folder, self.image_size = Path(folder), image_size
        if not self.folder.is_dir():
            raise RefusedInput(f"{folder}: there is no such folder.")
        found = (path for path in self.folder.iterdir() if path.suffix.lower() in ENDINGS)
        self.paths = sorted(path for path in found if path.name != _GRID)
        if not self.paths:
            raise RefusedInput(f"{folder} holds no images ({', '.join(ENDINGS)}).")

    def __len__(self) -> int:
        return len(self.paths)

    def real_batches(self, batch_size: int) -> Iterator[UInt8[Tensor, "b 3 h w"]]:
        """Yields every image once, uint8 (b, 3, h, w).

        Raises:
            RefusedInput: a file cannot be read, or has another size than the first.
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
