"""Output of a discriminator that also returns the features of its layers, for feature matching."""

from __future__ import annotations

from typing import Any, NamedTuple


class WithFeatures(NamedTuple):
    """Scores of a discriminator together with its features, for feature matching.

    Attributes:
        scores: a tensor (n, ...), or a list, tuple or dict of such tensors.
        features: outputs of the discriminator's inner layers, as a tensor, or as a list, tuple or dict of tensors.
    """

    scores: Any
    features: Any
