"""Names of classes, by which the classes of a generator, of its data and of a feature extractor are compared."""

from __future__ import annotations

from itertools import zip_longest

from lit_gans.data.contracts import NamedClasses


def class_names_of(data: object) -> tuple[str, ...]:
    """Returns the name of each class, in the order of the class indices; empty if the classes have no names."""
    return tuple(data.class_names) if isinstance(data, NamedClasses) else ()


def other_class(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str | None:
    """Describes the first class whose name differs. Returns None if all names are equal, or if names are unknown."""
    if not ours or not theirs or ours == theirs:
        return None
    pairs = enumerate(zip_longest(ours, theirs, fillvalue="missing"))
    return next(f"class {number} is {our}, not {their}" for number, (our, their) in pairs if our != their)
