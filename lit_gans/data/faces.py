"""Cartoon faces whose attributes are known: how they are drawn at random, encoded, and rendered.

The designs are Avataaars by Pablo Stanley (https://avataaars.com), free for personal and commercial use, in the package
`python-avatars` (MIT); `resvg-py` renders them.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Int64
from PIL import Image

from lit_gans.common.errors import RefusedInput, import_extra, nearest
from lit_gans.common.noise import mix
from lit_gans.common.size import Size, sides

ATTRIBUTION = "Avataaars, designed by Pablo Stanley (https://avataaars.com), drawn with python-avatars"

Label = Literal[
    "hat",
    "hair",
    "hair_color",
    "hat_color",
    "glasses",
    "beard",
    "eyes",
    "eyebrows",
    "mouth",
    "nose",
    "skin",
    "clothing",
    "clothing_color",
]
Face = dict[str, str]  # the option of every attribute
Rule = Mapping[str, str | Sequence[str]]

NONE = "none"
_COLORS = (
    "black blue_01 blue_02 blue_03 gray_01 gray_02 heather pastel_blue pastel_green pastel_orange pastel_yellow pink"
    " red white"
)


@dataclass(frozen=True)
class Attribute:
    """An attribute of a face.

    Args:
        names: names of the options, separated by spaces.
        absent: probability of the option `none`, which precedes the others; the others are equally likely.
        always: whether the attribute of every face can be seen, so that there is no option `none`.
    """

    names: str
    absent: float = 0.0
    always: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all options; `none` precedes the others if a face may lack the attribute or hide it."""
        return (*self.names.split(),) if self.always else (NONE, *self.names.split())

    def drawn(self, uniform: float) -> str:
        """Returns the option for a uniform random number in [0, 1)."""
        names = self.names.split()
        if uniform < self.absent:
            return NONE
        return names[int((uniform - self.absent) / (1 - self.absent) * len(names))]


ATTRIBUTES: dict[Label, Attribute] = {
    "hat": Attribute(
        "hat hijab turban winter_hat_1 winter_hat_2 winter_hat_3 winter_hat_4 chef_cap jedi gladiator_helmet",
        absent=0.7,
    ),
    "hair": Attribute(
        "big_hair bob bun caesar_side_part caesar curly curvy dreads frida frizzle fro_band fro long_not_too_long"
        " mia_wallace shaggy_mullet shaggy shaved_sides short_curly short_dreads_1 short_dreads_2 short_flat"
        " short_round short_waved sides straight_1 straight_2 straight_strand braids bride buzzcut cornrows curly_2"
        " dreadlocks einstein_hair elvis evil_spike half_shaved long_hair_curly loose_hair mohawk mowgli pixie"
        " pompadour quiff twist_long_hair twist_long_hair_2 wick wild",
        absent=0.02,
    ),
    "hair_color": Attribute("auburn black blonde blonde_golden brown brown_dark pastel_pink platinum red silver_gray"),
    "hat_color": Attribute(_COLORS),
    "glasses": Attribute(
        "kurt prescription_01 prescription_02 round sunglasses wayfarers sunglasses_2 wayfarers_2", absent=0.6
    ),
    "beard": Attribute(
        "beard_light beard_magestic beard_medium moustache_fancy moustache_magnum einstien_mustache wick_beard",
        absent=0.7,
    ),
    "eyes": Attribute(
        "closed cry default eye_roll happy heart side squint surprised wink_wacky wink x_dizzy", always=True
    ),
    "eyebrows": Attribute(
        "angry_natural angry default_natural default flat_natural frown_natural raised_excited_natural raised_excited"
        " sad_concerned_natural sad_concerned unibrow_natural up_down_natural up_down",
        always=True,
    ),
    "mouth": Attribute(
        "concerned default disbelief eating grimace sad scream_open serious smile tongue twinkle vomit big_smile",
        always=True,
    ),
    "nose": Attribute("default small wide", always=True),
    "skin": Attribute("tanned yellow pale light brown dark_brown black", always=True),
    "clothing": Attribute(
        "blazer_shirt blazer_sweater collar_sweater hoodie overall shirt_crew_neck shirt_scoop_neck shirt_v_neck"
        " astronaut_suit bond_suit chef gladiator jedi_robe shirt_wick",
        always=True,
    ),
    "clothing_color": Attribute(_COLORS),
}


# ---- attributes at random


def draw(seed: int, *index: int | str) -> Face:
    """Returns an option for every attribute, each a function of the seed, the index and the attribute's name alone.

    The attributes are independent. Attributes that cannot be seen together, such as hair under a hat, are all present.
    """
    return {name: each.drawn(mix(seed, *index, name) / 2**63) for name, each in ATTRIBUTES.items()}


def visible(face: Face) -> Face:
    """Returns a face whose attributes that cannot be seen are `none`: a hat replaces the hair; some tops have no place
    for glasses or a beard; some parts have colors of their own.
    """
    seen = dict(face)
    if seen["hat"] != NONE:
        seen["hair"] = NONE
    parts = _parts_of("hat" if seen["hat"] != NONE else "hair", _top(seen))
    if "Accessory" not in parts:
        seen["glasses"] = NONE
    if "Facial-Hair" not in parts:
        seen["beard"] = NONE
    if "Fabric-Color" not in parts or seen["hat"] == NONE:
        seen["hat_color"] = NONE
    if (seen["hair"] == NONE or "Hair-Color" not in parts) and seen["beard"] == NONE:
        seen["hair_color"] = NONE
    if seen["clothing"] == "astronaut_suit":
        seen["clothing_color"] = NONE
    return seen


def matches(face: Face, rule: Rule) -> bool:
    """Returns whether a face has all the options of a rule; a list of options stands for any of them."""
    return all(face[name] in ([options] if isinstance(options, str) else options) for name, options in rule.items())


def raise_if_no_attribute(name: str, key: str, known: Iterable[str] = ATTRIBUTES) -> None:
    """Raises `RefusedInput` if a name is not that of a known attribute.

    Args:
        name: name of the attribute.
        key: what was set to it, for the error message.
        known: names of the attributes that are possible.
    """
    if name not in known:
        raise RefusedInput(f"{key}: there is no attribute '{name}': {nearest(str(name), known)}")


def raise_if_unknown(rule: Rule, key: str) -> None:
    """Raises `RefusedInput` if a rule names an attribute or an option that does not exist.

    Args:
        rule: option or options by attribute.
        key: key of the rule, for the error message.
    """
    for name, options in rule.items():
        raise_if_no_attribute(name, key)
        several = [options] if isinstance(options, str) else options
        if not (isinstance(several, Sequence) and several and all(isinstance(option, str) for option in several)):
            raise RefusedInput(f"{key}.{name}={options} must be an option, or a list of options, of {name}.")
        for option in several:
            if option not in (known := ATTRIBUTES[cast(Label, name)].options):
                close = nearest(str(option), known)
                raise RefusedInput(f"{key}: the attribute '{name}' has no option '{option}': {close}")


def code_of(face: Face) -> int:
    """Returns all attributes of a face as one number, below 2**63."""
    code = 0
    for name, attribute in ATTRIBUTES.items():
        code = code * len(attribute.options) + attribute.options.index(face[name])
    return code


def attributes_of(codes: Int64[np.ndarray, " n"]) -> dict[str, Int64[np.ndarray, " n"]]:
    """Returns the number of the option of each attribute from the codes of faces."""
    numbers = {}
    for name, attribute in reversed(ATTRIBUTES.items()):
        codes, numbers[name] = np.divmod(codes, len(attribute.options))
    return {name: numbers[name] for name in ATTRIBUTES}


# ---- rendering


@contextmanager
def _unchanged_random_numbers() -> Iterator[None]:
    """Context that restores the state of Python's random numbers, which importing `python_avatars` changes."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@cache
def _avatars() -> ModuleType:
    with _unchanged_random_numbers():
        return import_extra("python_avatars", "avatars")


def identity_of_faces() -> dict[str, Any]:
    """Returns the values that identify the designs and their rendering; raises `RefusedInput` without the packages."""
    _avatars()
    import_extra("resvg_py", "avatars")
    return {name: version(name) for name in ("python-avatars", "resvg-py")}


def _top(face: Face) -> str:
    """Returns the name of the design of a visible face's hat or hair."""
    return face["hat"] if face["hat"] != NONE else "no_hair" if face["hair"] == NONE else face["hair"]


@cache
def _parts_of(kind: str, top: str) -> frozenset[str]:
    """Returns the names of the elements of a hat's or of hair's design: places for other parts, and fillings."""
    path = Path(str(_avatars().__file__)).parent / "avatar_parts" / "top" / kind / f"{top}.svg"
    return frozenset(re.findall(r'id="([\w-]+)"', path.read_text(encoding="utf-8")))


def svg_of(face: Face) -> str:
    """Returns the drawing of a visible face, 264 units wide and 280 high."""
    avatars = _avatars()
    hair_color = avatars.HairColor[(face["hair_color"] if face["hair_color"] != NONE else "brown").upper()]

    def fabric(name: str) -> Any:
        return avatars.ClothingColor[(face[name] if face[name] != NONE else "heather").upper()]

    drawing: str = avatars.Avatar(
        style=avatars.AvatarStyle.TRANSPARENT,
        top=(avatars.HairType if face["hat"] == NONE else avatars.HatType)(_top(face)),
        hat_color=fabric("hat_color"),
        hair_color=hair_color,
        facial_hair_color=hair_color,
        facial_hair=avatars.FacialHairType("" if face["beard"] == NONE else face["beard"]),
        accessory=avatars.AccessoryType("" if face["glasses"] == NONE else face["glasses"]),
        eyes=avatars.EyeType(face["eyes"]),
        eyebrows=avatars.EyebrowType(face["eyebrows"]),
        mouth=avatars.MouthType(face["mouth"]),
        nose=avatars.NoseType(face["nose"]),
        skin_color=avatars.SkinColor[face["skin"].upper()],
        clothing=avatars.ClothingType(face["clothing"]),
        clothing_color=fabric("clothing_color"),
    ).render()
    return drawing


_SIDE = 256  # side of the square that an image shows, in units of the drawing, without the lower edge of the clothes
_LEFT, _TOP = 4, 0  # of that square


def render(face: Face, image_size: Size, background: tuple[int, int, int] | None) -> Image.Image:
    """Returns a visible face as a picture.

    Args:
        face: option of each attribute.
        image_size: height and width of the picture; in rectangles, faces are as large as the shorter side allows.
        background: red, green and blue, 0 to 255, of the background; None for a transparent one (RGBA).
    """
    height, width = sides(image_size)
    unit = _SIDE / min(height, width)
    wide, high = width * unit, height * unit
    box = f"{_LEFT - (wide - _SIDE) / 2:.3f} {_TOP - (high - _SIDE) / 2:.3f} {wide:.3f} {high:.3f}"
    shown = f'width="{width}px" height="{height}px" viewBox="{box}"'
    drawing, num = re.subn(r'width="264px" height="280px" viewBox="0 0 264 280"', shown, svg_of(face), count=1)
    if not num:
        raise RefusedInput("data=avatars: this version of python-avatars draws at another size: install 1.4.1.")
    png = import_extra("resvg_py", "avatars").svg_to_bytes(svg_string=drawing, skip_system_fonts=True)
    picture = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
    if background is None:
        return picture
    return Image.alpha_composite(Image.new("RGBA", picture.size, (*background, 255)), picture).convert("RGB")
