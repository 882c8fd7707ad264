"""Attributes of generated cartoon faces beside those of the real ones, and whether their combinations are copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.data.faces import ATTRIBUTES, Label, raise_if_no_attribute
from lit_gans.metrics.extractors.avatars import AvatarsExtractor, attributes_of_features
from lit_gans.metrics.extractors.base import Network, Widths
from lit_gans.metrics.scores.base import StoredFeatures


class AvatarAttributes(StoredFeatures):
    """Attributes of generated cartoon faces, which `AvatarsExtractor` reads, beside those of the real faces.

    `compute` returns a dictionary of scalars:

    - `attribute_distance`: mean over attributes of the total variation distance, in [0, 1], between the distributions
      of options of real and of generated faces.
    - `options_missing`: number of options that at least 1 of 100 real faces has, and no generated face.
    - `combinations_known`: fraction of the generated faces whose combination of options a real face has, too. Only the
      attributes `combined` count, which are read most reliably.
    - `combinations_by_chance`: fraction of the real faces whose combination another real face has, too. A generator
      that draws new faces from the distribution of the real ones has as many known combinations; one that has
      memorized its training data has far more.

    See `FeatureScore` for further arguments.

    Args:
        combined: attributes of a combination.

    Raises:
        RefusedInput: the extractor is another one, or an attribute does not exist.

    Examples:
        >>> from lit_gans.data.sources.avatars import Avatars
        >>> from lit_gans.metrics import AvatarAttributes
        >>> from lit_gans.metrics.extractors.avatars import AvatarsExtractor
        >>> attributes, faces = AvatarAttributes(AvatarsExtractor()), Avatars(num_images=60).packed.images
        >>> attributes.update(faces[:40], real=True)
        >>> attributes.update(faces[:20], real=False)
        >>> attributes.compute()["combinations_known"]  # all of them are copies
        tensor(1., dtype=torch.float64)
    """

    directions = {
        "attribute_distance": "min",
        "options_missing": "min",
        "combinations_known": None,
        "combinations_by_chance": None,
    }
    with_extractor = False

    def __init__(
        self,
        feature: nn.Module | None = None,
        combined: Sequence[Label] = ("hat", "hair", "hair_color", "glasses", "beard", "skin", "clothing"),
        **kwargs: Any,
    ) -> None:
        for name in combined:
            raise_if_no_attribute(name, "combined")
        self.combined = combined
        super().__init__(feature, **kwargs)

    def attach(self, network: Network, widths: Widths) -> None:
        if not isinstance(network.extractor, AvatarsExtractor):
            raise RefusedInput("AvatarAttributes reads attributes from the features of AvatarsExtractor: use that one.")
        super().attach(network, widths)

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        if num_real and num_fake:
            return None
        return f"there are no {'real' if num_fake else 'generated'} faces: use at least 1."

    def compute(self) -> dict[str, Float64[Tensor, ""]]:
        """Returns the values by name.

        Raises:
            RefusedInput: there are no real or no generated faces.
        """
        real, fake = map(attributes_of_features, self.stored())
        shares = {name: (_shares(real[name], name), _shares(fake[name], name)) for name in ATTRIBUTES}
        distances = [(theirs - ours).abs().sum().item() / 2 for theirs, ours in shares.values()]
        missing = sum(int(((theirs >= 0.01) & (ours == 0)).sum()) for theirs, ours in shares.values())
        known, counts = self._combinations(real).unique(return_counts=True)
        values = {
            "attribute_distance": sum(distances) / len(distances),
            "options_missing": float(missing),
            "combinations_known": torch.isin(self._combinations(fake), known).double().mean().item(),
            "combinations_by_chance": counts[counts > 1].sum().item() / counts.sum().item(),
        }
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    def _combinations(self, numbers: dict[Label, Int64[Tensor, " n"]]) -> Int64[Tensor, " n"]:
        """Returns a number for each face that is equal where all options of the combined attributes are."""
        codes = torch.zeros_like(numbers["hat"])
        for name in self.combined:
            codes = codes * len(ATTRIBUTES[name].options) + numbers[name]
        return codes


def _shares(numbers: Int64[Tensor, " n"], name: Label) -> Float64[Tensor, " o"]:
    """Returns the fraction of faces that have each option of an attribute."""
    return numbers.bincount(minlength=len(ATTRIBUTES[name].options)).double() / len(numbers)
