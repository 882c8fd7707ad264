"""Compares the attributes of generated cartoon faces with the attributes of real faces, and detects memorization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.data.faces import ATTRIBUTES, Label, raise_if_unknown, several
from lit_gans.metrics.extractors.avatars import AvatarsExtractor, attributes_of_features
from lit_gans.metrics.extractors.base import Network, Widths
from lit_gans.metrics.scores.base import StoredFeatures


class AvatarAttributes(StoredFeatures):
    """Compares the attributes of generated and of real cartoon faces. `AvatarsExtractor` predicts the attributes.

    `compute` returns a dictionary of scalars:

    - `attribute_distance`: total variation distance, in [0, 1], between the distributions of an attribute's options in
      real and in generated faces, averaged over all attributes.
    - `options_missing`: number of options that occur in at least 1 % of the real faces, but in no generated face.
    - `combinations_known`: fraction of the generated faces whose combination of options also occurs in a real face.
      Only the attributes in `combined` are compared, because they are predicted most reliably.
    - `combinations_by_chance`: fraction of the real faces whose combination also occurs in another real face. A
      generator that draws new faces has about as many known combinations, one that has memorized its training data far
      more.
    - `held_out_drawn`, with `held_out`: fraction of the generated faces that match the rule. A generator that memorizes
      draws none.
    - `held_out_by_chance`, with `held_out`: the same fraction if the generated attributes were independent.

    See `FeatureScore` for further arguments.

    Args:
        combined: attributes that `combinations_known` and `combinations_by_chance` combine.
        held_out: rule that was excluded from the training data, see `Avatars`.

    Raises:
        RefusedInput: the extractor is not an `AvatarsExtractor`, or an attribute or an option does not exist.

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

    @converts_arguments
    def __init__(
        self,
        feature: nn.Module | None = None,
        combined: Sequence[Label] = ("hat", "hair", "hair_color", "glasses", "beard", "skin", "clothing"),
        held_out: dict[str, str | list[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        if not combined:
            raise RefusedInput("combined=[] combines no attributes: name at least one.")
        if held_out == {}:
            raise RefusedInput("held_out={} has no options: name some, or use null.")
        if held_out is not None:
            raise_if_unknown(held_out, "held_out")
            self.directions = {**type(self).directions, "held_out_drawn": None, "held_out_by_chance": None}
        self.combined, self.held_out = combined, held_out
        super().__init__(feature, **kwargs)

    def attach(self, network: Network, widths: Widths) -> None:
        if not isinstance(network.extractor, AvatarsExtractor):
            raise RefusedInput("AvatarAttributes works only with the features of AvatarsExtractor: use this extractor.")
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
        fractions = [(_fractions(real[name], name), _fractions(fake[name], name)) for name in ATTRIBUTES]
        distances = [(of_real - of_fake).abs().sum().item() / 2 for of_real, of_fake in fractions]
        missing = sum(int(((of_real >= 0.01) & (of_fake == 0)).sum()) for of_real, of_fake in fractions)
        known, counts = self._combinations(real).unique(return_counts=True)
        values = {
            "attribute_distance": sum(distances) / len(distances),
            "options_missing": float(missing),
            "combinations_known": torch.isin(self._combinations(fake), known).double().mean().item(),
            "combinations_by_chance": counts[counts > 1].sum().item() / counts.sum().item(),
        }
        if self.held_out is not None:
            having = torch.stack([_has(fake, cast(Label, name), some) for name, some in self.held_out.items()])
            values["held_out_drawn"] = having.all(0).double().mean().item()
            values["held_out_by_chance"] = having.double().mean(1).prod().item()
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    def _combinations(self, numbers: dict[Label, Int64[Tensor, " n"]]) -> Int64[Tensor, " n"]:
        """Returns a number for each face. Faces with the same options of all combined attributes have equal numbers."""
        codes = torch.zeros_like(numbers["hat"])
        for name in self.combined:
            codes = codes * len(ATTRIBUTES[name].options) + numbers[name]
        return codes


def _has(numbers: dict[Label, Int64[Tensor, " n"]], name: Label, options: str | list[str]) -> Bool[Tensor, " n"]:
    """Returns which faces have one of the options of an attribute."""
    wanted = [ATTRIBUTES[name].options.index(option) for option in several(options)]
    return torch.isin(numbers[name], torch.tensor(wanted))


def _fractions(numbers: Int64[Tensor, " n"], name: Label) -> Float64[Tensor, " o"]:
    """Returns the fraction of faces with each option of an attribute."""
    return numbers.bincount(minlength=len(ATTRIBUTES[name].options)).double() / len(numbers)
