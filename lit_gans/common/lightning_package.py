"""Chooses between the two packages that Lightning is published as: `lightning.pytorch` and `pytorch_lightning`.

Their classes have the same code, but a Trainer of one refuses strategies, modules and callbacks of the other. A process
uses the one that the author of the module imports: whose Trainer first gets the name of a strategy or, when a class of
the strategies is imported before, that is already imported; `lightning.pytorch` if both or none are.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from lit_gans.common.errors import RefusedInput

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_chosen: list[str] = []  # at most one


def packages_in_use() -> list[str]:
    """Returns those of the two that are imported or, if none is, those that are installed."""
    imported = [package for package in PACKAGES if f"{package}.strategies" in sys.modules]
    return imported or [package for package in PACKAGES if find_spec(package.partition(".")[0])]


def lightning_package(package: str | None = None) -> str:
    """Returns the package that the strategies are classes of, which the first call chooses.

    Args:
        package: the one whose Trainer asks; `None` takes the first that is imported, or else installed.

    Raises:
        RefusedInput: the other one has been chosen.
        ModuleNotFoundError: none is installed.
    """
    if not _chosen:
        candidates = [package] if package else packages_in_use()
        if not candidates:
            raise ModuleNotFoundError("lit_gans needs Lightning: python -m pip install lightning", name="lightning")
        _chosen.append(candidates[0])
    if package not in (None, _chosen[0]):
        raise RefusedInput(
            f"a Trainer of {package} asks for a strategy of lit_gans, whose classes are already those of {_chosen[0]}:"
            f" import {package} before lit_gans, and nothing of {_chosen[0]}."
        )
    return _chosen[0]
