"""Compares the names of files and classes in the same way on all operating systems.

Operating systems encode the same name in different bytes.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Generic, TypeVar

T = TypeVar("T")


def composed(name: str) -> str:
    """Returns a name in composed Unicode form (NFC), without surrounding spaces. macOS stores decomposed names.

    Under an ASCII locale, Python decodes each non-ASCII byte of a file name to a surrogate. If these bytes are valid
    UTF-8, they are decoded here, so that the name equals the same name in a configuration file.
    """
    with suppress(UnicodeError):
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return unicodedata.normalize("NFC", name).strip()


def without_case(name: str) -> str:
    """Returns a normalized name, for comparisons that ignore case, Unicode form and surrounding spaces."""
    return composed(composed(name).casefold())


def as_path(name: str) -> str:
    """Returns a normalized relative path: forward slashes, composed Unicode form, no quotes, and no leading `./`."""
    name = composed(name).strip("\"'").strip()
    return posixpath.normpath(name.replace("\\", "/"))


def as_path_without_case(name: str) -> str:
    """Returns a normalized relative path, for comparisons that ignore case; see `as_path`."""
    return without_case(as_path(name))


def first_three(names: Iterable[object]) -> str:
    """Returns the first three names, and the number of the remaining names, such as `a, b, c and 7 more`."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return f"{', '.join(texts[:3])}{more}"


class Lookup(Generic[T]):
    """Lookup table that finds values by name, even if the names are only equal after a conversion.

    Args:
        values: pairs of a name and a value.
        *conversions: functions that convert names. Each conversion is tried only if exact comparison and all previous
            conversions find nothing.
    """

    def __init__(self, values: Iterable[tuple[str, T]], *conversions: Callable[[str], str]) -> None:
        self._values, self._conversions = [*values], conversions

    @cached_property
    def _tables(self) -> list[tuple[Callable[[str], str], dict[str, list[T]]]]:
        tables: list[tuple[Callable[[str], str], dict[str, list[T]]]] = []
        conversions: list[Callable[[str], str]] = [str, *self._conversions]
        for conversion in conversions:
            table: dict[str, list[T]] = defaultdict(list)
            for name, value in self._values:
                table[conversion(name)].append(value)
            tables.append((conversion, dict(table)))
        return tables

    def find(self, name: str) -> list[T]:
        """Returns all values with the given name: several if the name is ambiguous, none if the name is unknown."""
        return next((table[key] for convert, table in self._tables if (key := convert(name)) in table), [])
