"""Compares names of files and classes as a person does: operating systems write one name in different bytes."""

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
    """Returns a name with composed letters (NFC), without surrounding blanks. macOS decomposes the letters of names.

    Under an ASCII locale, Python reads each byte of a letter in a file name as a surrogate. Bytes that are UTF-8 become
    the letters that a configuration has.
    """
    with suppress(UnicodeError):
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return unicodedata.normalize("NFC", name).strip()


def without_case(name: str) -> str:
    """Returns a name for comparisons that ignore case, Unicode form, and surrounding blanks."""
    return composed(composed(name).casefold())


def as_path(name: str) -> str:
    """Returns a relative path with slashes, in composed letters, without quotes and a leading `./`."""
    name = composed(name).strip("\"'").strip()
    return posixpath.normpath(name.replace("\\", "/"))


def as_path_without_case(name: str) -> str:
    """Returns `as_path` for comparisons that ignore case."""
    return without_case(as_path(name))


class Lookup(Generic[T]):
    """Finds values by their name: by equal names, or, if there are none, by names that become equal by a conversion.

    Args:
        values: values and their names.
        conversions: conversions of names, of which a later one is tried only if the earlier ones find nothing.
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
        """Returns the values of a name: several if the name is ambiguous, none if it is unknown."""
        return next((table[key] for convert, table in self._tables if (key := convert(name)) in table), [])
