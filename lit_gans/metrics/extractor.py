"""What turns images into features: the base class of every extractor."""

from __future__ import annotations

from jaxtyping import Float, UInt8
from torch import Tensor, nn


class Extractor(nn.Module):
    """Features and class logits of uint8 images. Always in evaluation mode, never trained, never in a checkpoint.

    A subclass sets `name` (the ending of every metric key), `num_features`, and `num_classes` where its classes mean
    those of the data (0 where they do not).
    """

    name: str
    num_features: int
    num_classes: int = 0

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        """Returns features (n, num_features) and class logits (n, k)."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Extractor:
        """Stays in evaluation mode."""
        return super().train(False)
