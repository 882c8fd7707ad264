"""Arithmetic of time intervals: which shares of a step compute, communicate, do both or wait for data."""

from __future__ import annotations

from collections.abc import Iterable

Intervals = list[tuple[float, float]]
SHARES = ("computation", "communication", "both", "data", "idle")


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Returns disjoint intervals in ascending order that cover the same times."""
    merged: Intervals = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def clip(intervals: Iterable[tuple[float, float]], start: float, end: float) -> Intervals:
    """Returns the parts of the intervals between two times."""
    return union((max(start, one), min(end, other)) for one, other in intervals)


def length(intervals: Iterable[tuple[float, float]]) -> float:
    """Returns the time that the intervals cover."""
    return sum(end - start for start, end in union(intervals))


def without(intervals: Iterable[tuple[float, float]], removed: Iterable[tuple[float, float]]) -> Intervals:
    """Returns the times in `intervals` that are not in `removed`."""
    left = union(intervals)
    for start, end in union(removed):
        left = [
            piece
            for one, other in left
            for piece in ((one, min(other, start)), (max(one, end), other))
            if piece[0] < piece[1]
        ]
    return left


def divide(
    start: float, end: float, computing: Intervals, communicating: Intervals, fetching: Intervals
) -> dict[str, float]:
    """Returns the seconds of a step by `SHARES`, which add up to the step.

    Args:
        start, end: times of the step.
        computing, communicating, fetching: times in which the device computes, communicates, and the next batch is
            fetched; fetching counts only while nothing else happens.
    """
    computes, communicates, fetches = (clip(each, start, end) for each in (computing, communicating, fetching))
    both = length(computes) + length(communicates) - length([*computes, *communicates])
    busy = length([*computes, *communicates])
    data = length([*computes, *communicates, *fetches]) - busy
    return {
        "computation": length(computes) - both,
        "communication": length(communicates) - both,
        "both": both,
        "data": data,
        "idle": end - start - busy - data,
    }
