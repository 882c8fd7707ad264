"""Losses of discriminators, with the scores that they were computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput

Scores = Any  # a tensor, or a list, tuple or dict of scores, such as those of each scale of a multi-scale discriminator


class Scored(NamedTuple):
    """A discriminator's loss and the scores that it was computed from, with their graph.

    Attributes:
        loss: scalar.
        real: scores of the real images: a tensor (n, ...), or a list, tuple or dict of such tensors.
        fake: scores of the generated images, likewise.
        penalty: scalar that is part of the loss, named if it is not finite; None for none.
    """

    loss: Tensor
    real: Scores
    fake: Scores
    penalty: Tensor | None = None


def loss_of(output: Tensor | Scored) -> Tensor:
    """Returns the loss of a discriminator, whose scores may be missing."""
    return output.loss if isinstance(output, Scored) else output


def scores_of(output: Tensor | Scored, name: str, reader: str) -> Scored:
    """Returns the loss of a discriminator with its scores.

    Args:
        output: entry of the discriminator in `discriminator_losses`.
        name: name of the discriminator.
        reader: setting that needs the scores, for the error message.

    Raises:
        RefusedInput: the scores are missing.
    """
    if not isinstance(output, Scored):
        raise RefusedInput(
            f"{reader} needs the scores of {name}, but discriminator_losses returns only its loss: return"
            f" {{'{name}': Scored(loss, real, fake)}} with the scores of the real and generated images."
        )
    return output


def tensors_of(scores: Scores) -> list[Tensor]:
    """Returns the tensors of scores of any structure."""
    if isinstance(scores, Tensor):
        return [scores]
    parts = scores.values() if isinstance(scores, Mapping) else scores
    return [tensor for part in parts for tensor in tensors_of(part)]


def flat_scores(scores: Scores) -> Float[Tensor, " num"]:
    """Returns all numbers of scores of any structure as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors_of(scores)])
