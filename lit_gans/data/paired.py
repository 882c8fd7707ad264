"""Pairs for image-to-image translation: a picture and the image that it shall become."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional

from lit_gans.data.base import ImageData, ImagesInMemory, resized
from lit_gans.data.digits import Digits
from lit_gans.data.pictures import ENDINGS, read_image
from lit_gans.errors import RefusedInput

Pairs = tuple[UInt8[Tensor, "n a s s"], UInt8[Tensor, "n c s s"]]


class PairedData(ImageData):
    """Serves pairs. A source overrides `load_pairs`."""

    def load_pairs(self, held_out: bool) -> Pairs:
        """Returns pictures and their images, those that train or those that are held out."""
        raise NotImplementedError

    @property
    def input_channels(self) -> int:
        """Channels of the pictures."""
        return self.channels

    def make_dataset(self) -> ImagesInMemory:
        pictures, images = self.load_pairs(held_out=False)
        return ImagesInMemory(images, torch.zeros(len(images), dtype=torch.long), input=pictures)

    @property
    def held_out(self) -> dict[str, UInt8[Tensor, "n c s s"]]:
        """The pairs that never train, `input` and `image`; of a source that holds none out, those that train."""
        if self._held_out is None:
            self._held_out = dict(zip(("input", "image"), self.load_pairs(held_out=True), strict=True))
        return self._held_out

    _held_out: dict[str, Tensor] | None = None


class DigitEdges(PairedData):
    """Outlines of the shipped digits, and the digits. Every tenth pair is held out.

    Args:
        **kwargs: see `ImageData`.
    """

    def load_pairs(self, held_out: bool) -> Pairs:
        digits = Digits(image_size=self.image_size, channels=self.channels).dataset.images
        digits = digits[(torch.arange(len(digits)) % 10 == 9) == held_out].contiguous()
        filled = (digits > 127).float()
        outline = functional.max_pool2d(filled, 3, stride=1, padding=1) - filled
        return outline.mul(255).to(torch.uint8), digits


class PairedFolder(PairedData):
    """A folder of pictures A|B side by side, as pix2pix's facades, in `train/` and `val/` or `test/`, or flat: then
    nothing is held out. Or two trees `A/` and `B/`, each so, in which the two of a pair have the same name but for the
    ending.

    Args:
        root: the folder.
        direction: `a_to_b` translates the left half into the right one.
        image_size, channels, batch_size: see `ImageData`; the paper's batch size is 1.
        **kwargs: see `ImageData`.

    Raises:
        RefusedInput: no such folder, no pictures in it, or a picture that cannot be halved.
    """

    def __init__(
        self,
        root: str,
        direction: Literal["a_to_b", "b_to_a"] = "a_to_b",
        image_size: int = 256,
        channels: int = 3,
        batch_size: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(image_size=image_size, channels=channels, batch_size=batch_size, **kwargs)
        self.root, self.direction = Path(root), direction
        if not self.root.is_dir():
            raise RefusedInput(f"data.root={root}: there is no such folder.")

    def load_pairs(self, held_out: bool) -> Pairs:
        trees = [self.root / name for name in ("A", "B")]
        if all(tree.is_dir() for tree in trees):
            halves = self._from_trees(*(self._paths(tree, held_out) for tree in trees))
        else:
            halves = [self._halves(path) for path in self._paths(self.root, held_out)]
        pictures, images = (torch.cat(side) for side in zip(*halves, strict=True))
        return (pictures, images) if self.direction == "a_to_b" else (images, pictures)

    def _paths(self, root: Path, held_out: bool) -> list[Path]:
        names = ("val", "test", "train") if held_out else ("train",)
        folder = next((root / name for name in names if (root / name).is_dir()), root)
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
        if not paths:
            raise RefusedInput(f"data.root={self.root}: {folder} holds no pictures ({', '.join(ENDINGS)}).")
        return paths

    def _from_trees(self, left: list[Path], right: list[Path]) -> list[Pairs]:
        named = [{path.stem: path for path in paths} for paths in (left, right)]
        alone = sorted(named[0].keys() ^ named[1].keys())
        if alone:
            path = next(paths[alone[0]] for paths in named if alone[0] in paths)
            raise RefusedInput(f"{path} has no partner: A/ and B/ must hold pictures of the same names.")
        sides = [
            [resized(read_image(paths[name], self.channels), self.image_size) for name in named[0]] for paths in named
        ]
        return list(zip(*sides, strict=True))

    def _halves(self, path: Path) -> Pairs:
        whole = read_image(path, self.channels)
        if whole.shape[-1] % 2:
            raise RefusedInput(f"{path} is {whole.shape[-1]} pixels wide: two halves side by side need an even width.")
        left, right = whole.chunk(2, dim=-1)
        return resized(left, self.image_size), resized(right, self.image_size)


def read_folder(folder: str | Path, image_size: int, channels: int) -> tuple[list[Path], UInt8[Tensor, "n c s s"]]:
    """Reads all pictures of a folder, in the order of their names, at one size.

    Raises:
        RefusedInput: no such folder, or no pictures in it.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in ENDINGS)
    if not paths:
        raise RefusedInput(f"{folder} holds no pictures ({', '.join(ENDINGS)}).")
    return paths, torch.cat([resized(read_image(path, channels), image_size) for path in paths])
