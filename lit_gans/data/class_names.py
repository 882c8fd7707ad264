"""Names of classes, by which the classes of a generator, of its data and of a feature extractor are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest


def class_names_of(owner: object) -> tuple[str, ...]:
    """Returns the names of the classes of data or of a feature extractor, by index; empty if they have no names.

    Args:
        owner: any object. Its names are in the attribute `class_names`, if it has one.
    """
    names = getattr(owner, "class_names", ())
    return tuple(map(str, names)) if isinstance(names, Iterable) else ()


def names_or_indices(names: Sequence[str], num_classes: int) -> list[str]:
    """Returns the names of the classes, or their indices as text if they have no names."""
    return list(names) or [str(number) for number in range(num_classes)]


def other_class(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str | None:
    """Describes the first class whose name differs. Returns None if all names are equal, or if names are unknown."""
    if not ours or not theirs:
        return None
    pairs = enumerate(zip_longest(ours, theirs, fillvalue="missing"))
    return next((f"class {number} is {our}, not {their}" for number, (our, their) in pairs if our != their), None)
