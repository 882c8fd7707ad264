"""Parts of the study by name."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.study.contract import Part
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.registry import classes

_PACKAGE = "benchmarks.study.parts"
_ORDER = ("batch", "scaling", "overlap", "optimizations", "deepspeed", "dual", "lightweight", "projection")


def parts(names: Sequence[str] = ()) -> dict[str, Part]:
    """Returns the parts with these names, or all, in the order of the report.

    Raises:
        RefusedInput: there is no such part.
    """
    found: dict[str, type[Part]] = classes(_PACKAGE, Part)
    for name in names:
        if name not in found:
            raise RefusedInput(f"parts: there is no part '{name}' of the study; {nearest(name, found)}")
    ordered = [name for name in _ORDER if name in found] + sorted(set(found) - {*_ORDER})
    return {name: found[name]() for name in ordered if not names or name in names}
