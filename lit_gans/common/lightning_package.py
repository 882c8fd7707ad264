"""Chooses between the two packages in which Lightning is published: `lightning.pytorch` and `pytorch_lightning`.

Their classes have the same code, but a Trainer of one package raises an error for strategies, modules and callbacks of
the other package. A process therefore uses a single package. If a Trainer receives a lit_gans strategy by name first,
the package of this Trainer is used. If a strategy class is imported first, the package that is already imported is
used. If both packages or neither are imported, `lightning.pytorch` is used.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from lit_gans.common.errors import RefusedInput

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_chosen: list[str] = []  # the chosen package; empty before the first call


def packages_in_use() -> list[str]:
    """Returns the Lightning packages that are imported. If none is imported, returns the installed packages."""
    imported = [package for package in PACKAGES if f"{package}.strategies" in sys.modules]
    return imported or [package for package in PACKAGES if find_spec(package.partition(".")[0])]


def lightning_package(package: str | None = None) -> str:
    """Returns the Lightning package of the strategies' base classes. The first call chooses the package.

    Args:
        package: package of the Trainer that uses a strategy. `None` chooses the first package that is imported, or the
            first installed package if none is imported.

    Raises:
        RefusedInput: the other package has already been chosen.
        ModuleNotFoundError: no Lightning package is installed.
    """
    if not _chosen:
        candidates = [package] if package else packages_in_use()
        if not candidates:
            raise ModuleNotFoundError("lit_gans needs Lightning: python -m pip install lightning", name="lightning")
        _chosen.append(candidates[0])
    if package not in (None, _chosen[0]):
        raise RefusedInput(
            f"a Trainer of {package} uses a strategy of lit_gans, but the strategies already use {_chosen[0]}:"
            f" import {package} before lit_gans, and import nothing from {_chosen[0]}."
        )
    return _chosen[0]
