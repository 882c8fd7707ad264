"""Losses of discriminators, with the scores that they were computed from."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lit_gans.common.errors import RefusedInput


class Scored(NamedTuple):
    """A discriminator's loss and the scores that it was computed from, with their graph.

    Attributes:
        loss: scalar.
        real: scores of the real images, (n, ...).
        fake: scores of the generated images, (n, ...).
        penalty: scalar that is part of the loss, named if it is not finite; None for none.
    """

    loss: Tensor
    real: Tensor
    fake: Tensor
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
