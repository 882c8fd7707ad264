"""Cartoon faces with known attributes: functions that sample, encode and render them.

The designs are Avataaars by Pablo Stanley (https://avataaars.com), which are free for personal and commercial use. The
package `python-avatars` (MIT) contains the designs, and `resvg-py` renders them.
"""

from __future__ import annotations

import io
import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
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
Face = dict[str, str]  # maps each attribute to its option
Rule = Mapping[str, str | Sequence[str]]

NONE = "none"
_COLORS = (
    "black blue_01 blue_02 blue_03 gray_01 gray_02 heather pastel_blue pastel_green pastel_orange pastel_yellow pink"
    " red white"
)


@dataclass(frozen=True)
class Attribute:
    """Attribute of a face, such as its hat, with the possible options.

    Args:
        names: names of the options other than `none`, separated by spaces. These options are equally likely.
        absent: probability of the option `none`.
        always: whether the attribute is visible in every face. If so, there is no option `none`.
    """

    names: str
    absent: float = 0.0
    always: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all options. The first name is `none` if a face can lack or hide the attribute."""
        return (*self.names.split(),) if self.always else (NONE, *self.names.split())

    def drawn(self, uniform: float) -> str:
        """Returns the option that a uniform random number in [0, 1) selects."""
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


_ONE_COLOR = {"straight_2"}  # designs of hair that have an element for the color, but never show it


# ---- sampling of attributes


def draw(seed: int, *index: int | str) -> Face:
    """Samples an option for every attribute.

    An option depends only on the seed, the index and the name of the attribute. The attributes are therefore
    independent. Options are also sampled for attributes that cannot be seen, such as hair under a hat; see `visible`.
    """
    return {name: attribute.drawn(mix(seed, *index, name) / 2**63) for name, attribute in ATTRIBUTES.items()}


def visible(face: Face) -> Face:
    """Returns a copy of a face in which all attributes that cannot be seen are `none`.

    A hat replaces the hair, some designs of hats and hair have no place for glasses or a beard, and some designs have
    fixed colors. Eyes and eyebrows keep their option in every face, although the glasses `kurt` cover the eyes and the
    hat `jedi` covers the eyebrows.
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
    has_color = "Hair-Color" in parts and seen["hair"] not in (NONE, *_ONE_COLOR)
    if not has_color and seen["beard"] == NONE:
        seen["hair_color"] = NONE
    if seen["clothing"] == "astronaut_suit":
        seen["clothing_color"] = NONE
    return seen


def matches(face: Face, rule: Rule) -> bool:
    """Returns whether a face matches a rule in every attribute.

    If the rule lists several options of an attribute, the face must have one of these options.
    """
    return all(face[name] in several(options) for name, options in rule.items())


def several(options: str | Sequence[str]) -> Sequence[str]:
    """Returns the options of an attribute in a rule as a sequence, also if the rule has a single option."""
    return [options] if isinstance(options, str) else options


def can_match(rule: Rule) -> bool:
    """Returns whether any face matches a rule. For example, no face has a hijab and shows a beard."""
    drawn = [draw(0, index) for index in range(100)]
    for each in itertools.product(*map(several, rule.values())):
        chosen = {name: option for name, option in zip(rule, each, strict=True) if _is_drawn(name, option)}
        if any(matches(visible(face | chosen), rule) for face in drawn):
            return True
    return False


def leaves(rule: Rule, name: Label, option: str) -> bool:
    """Returns whether any face with an option of an attribute does not match a rule."""
    shown = (visible(draw(0, index) | {name: option}) for index in range(100))
    return any(face[name] == option and not matches(face, rule) for face in shown)


def _is_drawn(name: str, option: str) -> bool:
    return option != NONE or ATTRIBUTES[cast(Label, name)].absent > 0


def raise_if_unknown(rule: Rule, key: str) -> None:
    """Raises `RefusedInput` if a rule contains an attribute or an option that does not exist.

    Args:
        rule: mapping of attributes to one option or several options.
        key: configuration key of the rule, for the error message.
    """
    for name, options in rule.items():
        if name not in ATTRIBUTES:
            raise RefusedInput(f"{key}: there is no attribute '{name}': {nearest(str(name), ATTRIBUTES)}")
        chosen = [options] if isinstance(options, str) else options  # of any type, before this check
        if not (isinstance(chosen, Sequence) and chosen and all(isinstance(option, str) for option in chosen)):
            raise RefusedInput(f"{key}.{name}={options} must be an option, or a list of options, of {name}.")
        for option in chosen:
            if option not in (known := ATTRIBUTES[name].options):
                close = nearest(str(option), known)
                raise RefusedInput(f"{key}: the attribute '{name}' has no option '{option}': {close}")


def code_of(face: Face) -> int:
    """Encodes all attributes of a face as one integer below 2**63."""
    code = 0
    for name, attribute in ATTRIBUTES.items():
        code = code * len(attribute.options) + attribute.options.index(face[name])
    return code


def attributes_of(codes: Int64[np.ndarray, " n"]) -> dict[str, Int64[np.ndarray, " n"]]:
    """Decodes the codes of faces. Returns the option indices of each attribute, one index per face."""
    numbers = {}
    for name, attribute in reversed(ATTRIBUTES.items()):
        codes, numbers[name] = np.divmod(codes, len(attribute.options))
    return {name: numbers[name] for name in ATTRIBUTES}


# ---- rendering


@contextmanager
def _unchanged_random_numbers() -> Iterator[None]:
    """Context manager that restores the state of Python's `random`, because importing `python_avatars` changes it."""
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
    """Returns the package versions, which determine the designs and their rendering, and the version of the attributes.

    Raises:
        RefusedInput: a package is not installed.
    """
    _avatars()
    import_extra("resvg_py", "avatars")
    return {"attributes": 2, **{name: version(name) for name in ("python-avatars", "resvg-py")}}


def _top(face: Face) -> str:
    """Returns the name of the hat or hair design of a visible face."""
    return face["hat"] if face["hat"] != NONE else "no_hair" if face["hair"] == NONE else face["hair"]


@cache
def _parts_of(kind: str, top: str) -> frozenset[str]:
    """Returns the names of the elements in the SVG file of a hat or hair design.

    The elements are placeholders for other parts, such as glasses, and areas whose color can be set.
    """
    path = Path(str(_avatars().__file__)).parent / "avatar_parts" / "top" / kind / f"{top}.svg"
    return frozenset(re.findall(r'id="([\w-]+)"', path.read_text(encoding="utf-8")))


def svg_of(face: Face) -> str:
    """Returns the SVG drawing of a visible face, which is 264 units wide and 280 units high."""
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


# square part of the drawing that an image shows, in units of the drawing; the lower edge of the clothes is cropped
_SIDE = 256
_LEFT, _TOP = 4, 0


def render(face: Face, image_size: Size, background: tuple[int, int, int] | None) -> Image.Image:
    """Renders a visible face.

    Args:
        face: option of each attribute.
        image_size: height and width of the image. In a rectangular image, the face fits the shorter side.
        background: color of the background (red, green, blue), each from 0 to 255; None renders a transparent
            background (RGBA).
    """
    height, width = sides(image_size)
    unit = _SIDE / min(height, width)
    wide, high = width * unit, height * unit
    box = f"{_LEFT - (wide - _SIDE) / 2:.3f} {_TOP - (high - _SIDE) / 2:.3f} {wide:.3f} {high:.3f}"
    shown = f'width="{width}px" height="{height}px" viewBox="{box}"'
    drawing, num = re.subn(r'width="264px" height="280px" viewBox="0 0 264 280"', shown, svg_of(face), count=1)
    if not num:
        raise RefusedInput("data=avatars: this version of python-avatars draws at an unexpected size: install 1.4.1.")
    png = import_extra("resvg_py", "avatars").svg_to_bytes(svg_string=drawing, skip_system_fonts=True)
    picture = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
    if background is None:
        return picture
    return Image.alpha_composite(Image.new("RGBA", picture.size, (*background, 255)), picture).convert("RGB")
