"""What the part `dual` trains on, and what judges its trainings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lit_gans.common.errors import RefusedInput, nearest


@dataclass(frozen=True)
class Score:
    """A score of generated images.

    Args:
        name: readable name.
        better: whether the smallest (`min`) or the largest value (`max`) is best.
    """

    name: str
    better: Literal["min", "max"] = "min"

    def best(self, values: Iterable[float]) -> float:
        """Returns the best of several values."""
        return min(values) if self.better == "min" else max(values)

    def worst(self, values: Iterable[float]) -> float:
        """Returns the worst of several values."""
        return max(values) if self.better == "min" else min(values)

    def reaches(self, value: float, level: float) -> bool:
        """Returns whether a value is at least as good as another one."""
        return self.best((value, level)) == value


@dataclass(frozen=True)
class Judge:
    """Experiments and scores for one kind of data.

    Args:
        experiment: experiment of a GAN, whose name replaces `{gan}`.
        scores: scores by their key in logs, the most important first.
        note: sentences about the scores.
        overrides: further overrides of the experiment, in which the number of samples replaces `{samples}`.
    """

    experiment: str
    scores: Mapping[str, Score]
    note: str
    overrides: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """Key of the most important score."""
        return next(iter(self.scores))


JUDGES = {
    "digits": Judge(
        "{gan}_digits",
        {"metric/fid_digits": Score("FID"), "metric/is_digits": Score("IS", "max")},
        "FID and Inception Score have the features of a digit classifier.",
    ),
    "emoji": Judge(
        "{gan}_emoji",
        {"metric/fid_efficientnet_lite0": Score("FID"), "metric/kid_efficientnet_lite0": Score("KID")},
        "FID and KID have the features of EfficientNet-Lite0. FID is larger with fewer samples, KID is not.",
        ("metrics.scores.prdc=null", "metrics.scores.kid.subset_size={samples}", "metrics.scores.kid.subsets=10"),
    ),
    "stacked_digits": Judge(
        "{gan}_digits",
        {"metric/modes_covered": Score("modes", "max"), "metric/kl_uniform": Score("KL")},
        "Modes: how many of the 1,000 triples a digit classifier finds, which fewer samples make fewer. KL: divergence"
        " of their frequencies from equal ones, which fewer samples make larger.",
        ("data=stacked_digits", "metrics=modes"),
    ),
}


def judge_of(data: str) -> Judge:
    """Returns the judge of one kind of data.

    Raises:
        RefusedInput: there is none.
    """
    if data not in JUDGES:
        raise RefusedInput(f"sizes.dual_data: there is no '{data}'; {nearest(data, JUDGES)}")
    return JUDGES[data]
