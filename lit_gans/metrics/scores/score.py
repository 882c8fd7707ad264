"""Base class of scores, and the selection of scores that a number of images allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, ClassVar

from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.statistics import Summary


class Score:
    """One or several values that compare generated with real images by features. Settings are dataclass fields.

    Subclasses declare what they need for each image, and whether larger (`max`) or smaller (`min`) values are better;
    None is for values without a direction, such as a spread.
    """

    needs_covariance: ClassVar[bool] = False  # of full rank only with more images than features
    needs_features: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    directions: ClassVar[dict[str, str | None]]
    with_extractor: ClassVar[bool] = True  # whether keys end with the extractor's name

    def applies(self, extractor: Extractor) -> bool:
        """Returns whether the extractor supports the score."""
        return True

    def too_few(self, num_real: int | None, num_fake: int) -> str | None:
        """Returns why there are too few images for the score and what would help, or None if there are enough.

        Args:
            num_real: number of real images; None if it is not known yet.
            num_fake: number of generated images.
        """
        fewest = smaller(num_real, num_fake)
        return f"{fewest} image has no covariance: use at least 2." if self.needs_covariance and fewest < 2 else None

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        """Computes the values by name, with the names of `directions`.

        Args:
            real, fake: statistics of real and generated images, with features or logits if the score needs them.
            seed: seed of shuffles and subsets.
        """
        raise NotImplementedError

    def keys(self, extractor: Extractor) -> dict[str, str]:
        """Returns the key of each name: `metric/<name>_<extractor>`."""
        ending = f"_{extractor.name}" if self.with_extractor else ""
        return {name: f"metric/{name}{ending}" for name in self.directions}

    def settings(self) -> dict[str, Any]:
        """Returns the settings for the protocol."""
        return asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass


def needed(tensor: Tensor | None) -> Tensor:
    """Returns stored features or logits.

    Raises:
        RuntimeError: they were not stored, since the score does not declare that it needs them.
    """
    if tensor is None:
        raise RuntimeError("Features or logits were not kept: set needs_features or needs_logits of the score.")
    return tensor


def smaller(num_real: int | None, num_fake: int) -> int:
    """Returns the smaller number of images, or the number of generated images if the other is unknown."""
    return num_fake if num_real is None else min(num_real, num_fake)


def measurable(
    scores: Iterable[Score], num_real: int | None, num_fake: int, num_logits: int | None = None
) -> tuple[list[Score], dict[str, str]]:
    """Returns the scores that the images allow, and the reason why each other score is left out, by name.

    Args:
        scores: scores to select from.
        num_real, num_fake: see `Score.too_few`.
        num_logits: number of class logits of the extractor; None if it is not known yet.

    Raises:
        RefusedInput: no score is left; the message gives all reasons.
    """
    kept, left_out = [], {}
    for score in scores:
        reason = score.too_few(num_real, num_fake)
        if score.needs_logits and num_logits == 0:
            reason = "the extractor has no class logits."
        if reason is None:
            kept.append(score)
        else:
            left_out[type(score).__name__] = reason
    if not kept:
        reasons = "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in left_out.items())
        raise RefusedInput(f"no score can be measured: {reasons}.")
    return kept, left_out
