"""What every score is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.statistics import Summary


class Score:
    """A number, or some, that compares generated images with real ones by features. Settings are dataclass fields.

    A subclass says what it needs of each image, and which of its values is better larger (`max`) or smaller (`min`);
    null is what has no better, such as a spread.
    """

    needs_covariance: ClassVar[bool] = False  # which wants more images than features
    needs_features: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    directions: ClassVar[dict[str, str | None]]
    with_extractor: ClassVar[bool] = True  # whether keys end with the extractor's name

    def applies(self, extractor: Extractor) -> bool:
        """Returns whether the extractor offers what the score is about."""
        return True

    def refuse(self, num_real: int | None, num_fake: int) -> None:
        """Raises `RefusedInput` where there are too few images; `num_real` is None where it is not known yet."""

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        """Returns the values by name, those of `directions`."""
        raise NotImplementedError

    def keys(self, extractor: Extractor) -> dict[str, str]:
        """Returns the key of each name: `metric/<name>_<extractor>`."""
        ending = f"_{extractor.name}" if self.with_extractor else ""
        return {name: f"metric/{name}{ending}" for name in self.directions}

    def settings(self) -> dict[str, Any]:
        """Returns what the protocol says of the score."""
        return asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass
