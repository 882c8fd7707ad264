"""Interleaving of benchmarks: contenders take turns, so that all run under the same conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from benchmarks.measure import spread

T = TypeVar("T")


def turn_order(names: Iterable[str], index: int) -> list[str]:
    """Returns the order of the contenders in a round, which is reversed in every other round.

    Args:
        names: names of the contenders.
        index: index of the round.
    """
    return list(names)[:: 1 if index % 2 else -1]


def take_turns(works: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Runs all contenders once per round and returns their results, by name and round.

    Args:
        works: contenders by name.
        rounds: number of rounds.
    """
    results: dict[str, list[T]] = {name: [] for name in works}
    for index in range(rounds):
        for name in turn_order(works, index):
            results[name].append(works[name]())
    return results


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """Returns the spread of the ratios within rounds, which are robust to changes in the speed of the machine."""
    return spread([one / other for one, other in zip(numerators, denominators, strict=True)])
