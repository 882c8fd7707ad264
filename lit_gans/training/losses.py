"""Adversarial losses: functions from logits to a scalar. All losses are means over the batch, in at least float32.

`Scored` holds a discriminator's loss together with the scores that the loss was computed from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision
from lit_gans.networks.features import WithFeatures

_FAR_BELOW = -15.0  # below this score, softplus(a) is numerically exp(a)


def logistic_discriminator(
    real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Computes the logistic loss of a discriminator (Goodfellow et al. 2014, equation 1).

    Args:
        real: logits of real images.
        fake: logits of generated images.
        label_smoothing: amount in [0, 1) by which the target of real images is lowered to 1 - label_smoothing. The
            smoothing is one-sided (Salimans et al. 2016, section 3.4).
    """
    real, fake = full_precision(real), full_precision(fake)
    on_real = functional.softplus(-real).mean()
    if label_smoothing:
        on_real = on_real + label_smoothing * real.mean()
    return on_real + functional.softplus(fake).mean()


def non_saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the non-saturating loss, -log D(G(z)) (Goodfellow et al. 2014, section 3)."""
    return functional.softplus(-full_precision(fake)).mean()


def saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the saturating loss, log(1 - D(G(z))) (Goodfellow et al. 2014, equation 1).

    Its gradient vanishes if D is confident.
    """
    return -functional.softplus(full_precision(fake)).mean()


def hinge_discriminator(real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"]) -> Float[Tensor, ""]:
    """Computes the hinge loss (Lim and Ye 2017; Miyato et al. 2018, equation 16)."""
    return functional.relu(1 - full_precision(real)).mean() + functional.relu(1 + full_precision(fake)).mean()


def hinge_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the hinge of generated data, max(0, 1 - D(G(z))), the generator's loss in SoundStream and in vocos.

    Scores above 1 have no gradient (Zeghidour et al. 2021, "SoundStream: An End-to-End Neural Audio Codec").
    """
    return functional.relu(1 - full_precision(fake)).mean()


def least_squares_discriminator(real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"]) -> Float[Tensor, ""]:
    """Computes the squared difference from 1 for real images plus the squared difference from 0 for generated images.

    The result is twice the loss in equation 9 of Mao et al. (2017). Zhu et al. (2017, section 4) also omit the factor
    1/2.
    """
    return (full_precision(real) - 1).square().mean() + full_precision(fake).square().mean()


def least_squares_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the squared difference from 1, which is twice the loss in equation 9 of Mao et al. (2017)."""
    return (full_precision(fake) - 1).square().mean()


def wasserstein_critic(real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"]) -> Float[Tensor, ""]:
    """Computes the mean score of generated images minus the mean score of real images.

    This is the critic's loss of WGAN (Arjovsky et al. 2017, equation 2).
    """
    return full_precision(fake).mean() - full_precision(real).mean()


def critic_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the negative mean score, the generator's loss in WGAN and with the hinge loss.

    See Miyato et al. (2018), equation 17.
    """
    return -full_precision(fake).mean()


def relativistic(preferred: Float[Tensor, " *shape"], other: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Computes the relativistic pairing loss (Jolicoeur-Martineau 2019; Huang et al. 2024, equation 2).

    Each preferred image is compared with one other image. For a discriminator, the preferred images are real and the
    other images are generated. For a generator, the preferred images are generated and the other images are real.
    """
    return functional.softplus(full_precision(other) - full_precision(preferred)).mean()


def log_softplus(scores: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    """Computes the logarithm of softplus, for D2GAN's positive discriminators.

    Softplus itself underflows for scores below -88. So for scores far below zero, this function uses the expansion
    log softplus(a) = a - exp(a) / 2 + O(exp(2 a)).
    """
    scores = full_precision(scores)
    far = scores < _FAR_BELOW
    near = functional.softplus(torch.where(far, _FAR_BELOW, scores)).log()  # prevents NaN in the unused branch
    return torch.where(far, scores - scores.clamp(max=_FAR_BELOW).exp() / 2, near)


Scores = Any  # a tensor, or a list, tuple or dict of scores, for example one tensor per scale


class Scored(NamedTuple):
    """A discriminator's loss and the scores that it was computed from, with their graph.

    Attributes:
        loss: scalar loss.
        real: scores of the real images: a tensor (n, ...), or a list, tuple or dict of such tensors.
        fake: scores of the generated images, in the same structure.
        penalty: scalar penalty that the loss already includes, or None. The finite check reports it separately.
    """

    loss: Tensor
    real: Scores
    fake: Scores
    penalty: Tensor | None = None


def loss_of(output: Tensor | Scored) -> Tensor:
    """Returns the loss from a discriminator's output, with or without scores."""
    return output.loss if isinstance(output, Scored) else output


def scores_of(output: Tensor | Scored, name: str, reader: str) -> Scored:
    """Returns the loss of a discriminator together with its scores.

    Args:
        output: the discriminator's entry in the result of `discriminator_losses`.
        name: name of the discriminator.
        reader: setting that needs the scores, for the error message.

    Raises:
        RefusedInput: if the scores are missing.
    """
    if not isinstance(output, Scored):
        raise RefusedInput(
            f"{reader} needs the scores of {name}, but discriminator_losses returns only its loss: return"
            f" {{'{name}': Scored(loss, real, fake)}} with the scores of the real and generated images."
        )
    return output


def tensors_of(scores: Scores) -> list[Tensor]:
    """Returns all tensors in a nested structure of scores. Features are left out, see `WithFeatures`.

    Raises:
        RefusedInput: if the structure contains anything but tensors, lists, tuples and dicts.
    """
    if isinstance(scores, Tensor):
        return [scores]
    if isinstance(scores, WithFeatures):
        return tensors_of(scores.scores)
    if not isinstance(scores, list | tuple | Mapping):
        raise RefusedInput(
            f"a discriminator must return its scores as a tensor, or as a list, tuple or dict of tensors, but they"
            f" contain {type(scores).__name__}."
        )
    parts = scores.values() if isinstance(scores, Mapping) else scores
    return [tensor for part in parts for tensor in tensors_of(part)]


def flat_scores(scores: Scores) -> Float[Tensor, " num"]:
    """Returns all values in a nested structure of scores as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors_of(scores)])


def features_of(scores: Scores) -> list[Tensor]:
    """Returns all features in a nested structure of scores, see `WithFeatures`. The list is empty without features."""
    if isinstance(scores, Tensor):
        return []
    if isinstance(scores, WithFeatures):
        return tensors_of(scores.features)
    parts = scores.values() if isinstance(scores, Mapping) else scores
    return [tensor for part in parts for tensor in features_of(part)]
