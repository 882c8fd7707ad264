"""Losses as tutorials write them: each term has a backward pass of its own, and its value is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.models.d2gan import D2GAN
from lit_gans.models.dcgan import DCGAN
from lit_gans.models.sngan import SNGAN
from lit_gans.models.wgan_gp import WGANGP
from lit_gans.training.adversarial import AdversarialModule

Images = Float[Tensor, "n c s s"]
_PENALTY = 10.0  # Gulrajani et al. 2017, lambda
_ALPHA = _BETA = 0.1  # of D2GAN, as in our module


@dataclass(frozen=True)
class Tutorial:
    """The losses of a GAN.

    Attributes:
        terms: yields the terms of the discriminators' losses from the discriminators, real and generated images.
        generator: returns the generator's loss from the discriminators and generated images.
    """

    terms: Callable[[Sequence[nn.Module], Images, Images], Iterator[Float[Tensor, ""]]]
    generator: Callable[[Sequence[nn.Module], Images], Float[Tensor, ""]]


def tutorial_of(module: AdversarialModule) -> Tutorial:
    """Returns the losses of a module's GAN."""
    return TUTORIALS[type(module)]


def _is(scores: Tensor, label: float) -> Tensor:
    return functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, label))


def _dcgan(discriminators: Sequence[nn.Module], real: Images, fake: Images) -> Iterator[Tensor]:
    (discriminator,) = discriminators
    yield _is(discriminator(real), 1.0)
    yield _is(discriminator(fake), 0.0)


def _dcgan_generator(discriminators: Sequence[nn.Module], fake: Images) -> Tensor:
    return _is(discriminators[0](fake), 1.0)


def _hinge(discriminators: Sequence[nn.Module], real: Images, fake: Images) -> Iterator[Tensor]:
    (discriminator,) = discriminators
    yield functional.relu(1 - discriminator(real)).mean() + functional.relu(1 + discriminator(fake)).mean()


def _critic_generator(discriminators: Sequence[nn.Module], fake: Images) -> Tensor:
    return -discriminators[0](fake).mean()


def _wasserstein(discriminators: Sequence[nn.Module], real: Images, fake: Images) -> Iterator[Tensor]:
    (critic,) = discriminators
    loss = critic(fake).mean() - critic(real).mean()
    share = torch.rand(len(real), 1, 1, 1, device=real.device)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    scores = critic(between)
    (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True)
    yield loss + _PENALTY * ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def _two(discriminators: Sequence[nn.Module], real: Images, fake: Images) -> Iterator[Tensor]:
    first, second = discriminators
    yield functional.softplus(first(fake)).mean() - _ALPHA * functional.softplus(first(real)).log().mean()
    yield functional.softplus(second(real)).mean() - _BETA * functional.softplus(second(fake)).log().mean()


def _two_generator(discriminators: Sequence[nn.Module], fake: Images) -> Tensor:
    first, second = discriminators
    return _BETA * functional.softplus(second(fake)).log().mean() - functional.softplus(first(fake)).mean()


TUTORIALS: dict[type, Tutorial] = {
    DCGAN: Tutorial(_dcgan, _dcgan_generator),
    SNGAN: Tutorial(_hinge, _critic_generator),
    WGANGP: Tutorial(_wasserstein, _critic_generator),
    D2GAN: Tutorial(_two, _two_generator),
}
