"""Base class of scores that need the features of single images."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from lit_gans.metrics.scores.base import FeatureScore


class StoredFeatures(FeatureScore):
    """Base class of scores that need the features of single images, real and generated ones, in main memory."""

    def add_states(self) -> None:
        self.add_state("real_features", [], dist_reduce_fx="cat")
        self.add_state("fake_features", [], dist_reduce_fx="cat")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        self.accumulate("real_features" if real else "fake_features", features)

    def stored(self) -> tuple[Float[Tensor, "n f"], Float[Tensor, "k f"]]:
        """Returns the features of the real and of the generated images.

        Raises:
            RefusedInput: there are too few.
        """
        real, fake = self.rows("real_features"), self.rows("fake_features")
        self.refuse_too_few(len(real), len(fake))
        return real, fake
