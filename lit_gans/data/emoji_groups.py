"""Groups of emoji by their code points, close to the groups of Unicode's emoji list (UTS #51)."""

from __future__ import annotations

from bisect import bisect_right

GROUPS = ("faces", "people", "nature", "food", "places", "objects", "symbols", "flags")
_FACES, _PEOPLE, _NATURE, _FOOD, _PLACES, _OBJECTS, _SYMBOLS, _FLAGS = range(len(GROUPS))
# first code point of each range and its group; a range ends where the next begins
_RANGES = (
    (0x0, _SYMBOLS),
    (0x231A, _OBJECTS),  # watches
    (0x2328, _OBJECTS),  # keyboard
    (0x23CF, _SYMBOLS),
    (0x23F0, _OBJECTS),  # clocks
    (0x23F4, _SYMBOLS),
    (0x2600, _NATURE),  # weather
    (0x2605, _SYMBOLS),
    (0x260E, _OBJECTS),
    (0x2610, _SYMBOLS),
    (0x2614, _NATURE),
    (0x2615, _FOOD),
    (0x2616, _SYMBOLS),
    (0x2618, _NATURE),
    (0x2619, _SYMBOLS),
    (0x261C, _PEOPLE),  # hands
    (0x2620, _SYMBOLS),
    (0x2639, _FACES),
    (0x263C, _SYMBOLS),
    (0x2692, _OBJECTS),  # tools
    (0x2695, _SYMBOLS),
    (0x2696, _OBJECTS),
    (0x269A, _SYMBOLS),
    (0x26B0, _OBJECTS),
    (0x26B2, _SYMBOLS),
    (0x26BD, _OBJECTS),  # balls
    (0x26C4, _NATURE),  # weather
    (0x26C9, _SYMBOLS),
    (0x26CF, _OBJECTS),
    (0x26D4, _SYMBOLS),
    (0x26E9, _PLACES),
    (0x26F7, _PEOPLE),  # sports
    (0x26FA, _PLACES),
    (0x2701, _OBJECTS),  # scissors
    (0x2705, _SYMBOLS),
    (0x2708, _PLACES),
    (0x2709, _OBJECTS),
    (0x270A, _PEOPLE),  # hands
    (0x270E, _OBJECTS),  # pens
    (0x2713, _SYMBOLS),
    (0x1F000, _OBJECTS),  # games
    (0x1F100, _SYMBOLS),
    (0x1F300, _NATURE),  # weather and sky
    (0x1F32D, _FOOD),
    (0x1F330, _NATURE),
    (0x1F336, _FOOD),
    (0x1F337, _NATURE),
    (0x1F33D, _FOOD),
    (0x1F33E, _NATURE),
    (0x1F345, _FOOD),
    (0x1F380, _OBJECTS),  # celebrations
    (0x1F385, _PEOPLE),
    (0x1F386, _OBJECTS),
    (0x1F3A0, _PLACES),  # fairs
    (0x1F3A3, _OBJECTS),
    (0x1F3C2, _PEOPLE),  # sports
    (0x1F3C5, _OBJECTS),
    (0x1F3C7, _PEOPLE),
    (0x1F3C8, _OBJECTS),
    (0x1F3CA, _PEOPLE),
    (0x1F3CD, _PLACES),
    (0x1F3CF, _OBJECTS),
    (0x1F3D4, _PLACES),
    (0x1F3F3, _FLAGS),
    (0x1F3F5, _OBJECTS),
    (0x1F3FB, _SYMBOLS),
    (0x1F400, _NATURE),  # animals
    (0x1F440, _PEOPLE),  # parts of the body
    (0x1F451, _OBJECTS),  # clothes
    (0x1F463, _PEOPLE),
    (0x1F479, _FACES),
    (0x1F47C, _PEOPLE),
    (0x1F47D, _FACES),
    (0x1F481, _PEOPLE),
    (0x1F484, _OBJECTS),
    (0x1F485, _PEOPLE),
    (0x1F488, _OBJECTS),
    (0x1F48F, _PEOPLE),  # couples
    (0x1F490, _NATURE),
    (0x1F491, _PEOPLE),
    (0x1F492, _PLACES),
    (0x1F493, _SYMBOLS),  # hearts
    (0x1F4A1, _OBJECTS),
    (0x1F4A2, _SYMBOLS),
    (0x1F4A3, _OBJECTS),
    (0x1F4A4, _SYMBOLS),
    (0x1F4A9, _FACES),
    (0x1F4AA, _PEOPLE),
    (0x1F4AB, _SYMBOLS),
    (0x1F4B0, _OBJECTS),
    (0x1F500, _SYMBOLS),
    (0x1F508, _OBJECTS),
    (0x1F518, _SYMBOLS),
    (0x1F525, _NATURE),
    (0x1F526, _OBJECTS),  # tools
    (0x1F52F, _SYMBOLS),
    (0x1F54A, _NATURE),
    (0x1F54B, _PLACES),
    (0x1F54E, _SYMBOLS),
    (0x1F56F, _OBJECTS),
    (0x1F574, _PEOPLE),
    (0x1F576, _OBJECTS),
    (0x1F577, _NATURE),
    (0x1F579, _OBJECTS),
    (0x1F57A, _PEOPLE),
    (0x1F587, _OBJECTS),
    (0x1F590, _PEOPLE),  # hands
    (0x1F5A4, _SYMBOLS),
    (0x1F5A5, _OBJECTS),
    (0x1F5E3, _PEOPLE),
    (0x1F5E8, _SYMBOLS),
    (0x1F5F3, _OBJECTS),
    (0x1F5FA, _PLACES),
    (0x1F600, _FACES),
    (0x1F645, _PEOPLE),  # gestures
    (0x1F648, _FACES),
    (0x1F64B, _PEOPLE),
    (0x1F650, _SYMBOLS),
    (0x1F680, _PLACES),  # vehicles
    (0x1F6A3, _PEOPLE),
    (0x1F6A4, _PLACES),
    (0x1F6AA, _OBJECTS),
    (0x1F6AB, _SYMBOLS),
    (0x1F6B2, _PLACES),
    (0x1F6B3, _SYMBOLS),
    (0x1F6B4, _PEOPLE),
    (0x1F6B7, _SYMBOLS),
    (0x1F6BF, _OBJECTS),
    (0x1F6C0, _PEOPLE),
    (0x1F6C1, _OBJECTS),
    (0x1F6C2, _SYMBOLS),
    (0x1F6CB, _OBJECTS),
    (0x1F6CC, _PEOPLE),
    (0x1F6CD, _OBJECTS),
    (0x1F6D0, _SYMBOLS),
    (0x1F6D1, _PLACES),
    (0x1F700, _SYMBOLS),
    (0x1F90C, _PEOPLE),  # hands
    (0x1F90D, _SYMBOLS),
    (0x1F90F, _PEOPLE),
    (0x1F910, _FACES),
    (0x1F918, _PEOPLE),  # hands
    (0x1F920, _FACES),
    (0x1F926, _PEOPLE),
    (0x1F927, _FACES),
    (0x1F930, _PEOPLE),
    (0x1F93F, _OBJECTS),
    (0x1F940, _NATURE),
    (0x1F941, _OBJECTS),
    (0x1F950, _FOOD),
    (0x1F970, _FACES),
    (0x1F977, _PEOPLE),
    (0x1F978, _FACES),
    (0x1F97B, _OBJECTS),
    (0x1F980, _NATURE),  # animals
    (0x1F9AF, _OBJECTS),
    (0x1F9B0, _PEOPLE),
    (0x1F9BA, _OBJECTS),
    (0x1F9BB, _PEOPLE),
    (0x1F9BC, _OBJECTS),
    (0x1F9C0, _FOOD),
    (0x1F9CC, _PEOPLE),
    (0x1F9E0, _PEOPLE),
    (0x1F9E1, _SYMBOLS),
    (0x1F9E2, _OBJECTS),
    (0x1FA75, _SYMBOLS),
    (0x1FA78, _OBJECTS),
    (0x1FAB0, _NATURE),  # animals and plants
    (0x1FAC0, _PEOPLE),
    (0x1FACD, _NATURE),
    (0x1FAD0, _FOOD),
    (0x1FAE0, _FACES),
    (0x1FAF0, _PEOPLE),
    (0x1FB00, _SYMBOLS),
)
_STARTS = [start for start, _ in _RANGES]


def group_of(codes: tuple[int, ...]) -> int:
    """Returns the index in `GROUPS` of the group of an emoji, given by its code points."""
    if _is_flag(codes):
        return _FLAGS
    return _RANGES[bisect_right(_STARTS, codes[0]) - 1][1]


def _is_flag(codes: tuple[int, ...]) -> bool:
    """Returns whether an emoji is a pair of regional indicators, as flags of countries are."""
    return len(codes) > 1 and all(0x1F1E6 <= code <= 0x1F1FF for code in codes[:2])


def has_skin_tone(codes: tuple[int, ...]) -> bool:
    """Returns whether an emoji has a modifier of the skin tone."""
    return any(0x1F3FB <= code <= 0x1F3FF for code in codes)


def is_private(codes: tuple[int, ...]) -> bool:
    """Returns whether an emoji has a code point of the private use area, as trademarks have."""
    return any(0xE000 <= code <= 0xF8FF for code in codes)
