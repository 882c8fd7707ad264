"""Training loops without Lightning: as in tutorials, equivalent to this library's step, and torch-mimicry's."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common._compat.torch import lerp_all
from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.models.d2gan import D2GAN
from lit_gans.models.dcgan import DCGAN
from lit_gans.models.sngan import SNGAN
from lit_gans.models.wgan_gp import WGANGP
from lit_gans.training.batch import Batch
from lit_gans.training.module import AdversarialModule
from lit_gans.training.step import TrainingStep

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


class Loop(Protocol):
    """A training loop that runs one step at a time."""

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates all networks and returns the losses, named as the networks.

        Args:
            real: images of all discriminator steps.
        """
        ...


class _Draws:
    """The random numbers of `AdversarialModule`, so that every loop uses the same."""

    def __init__(self, module: AdversarialModule) -> None:
        self._module, self._iteration = module, 0
        self._generator = torch.Generator(device=module.device)

    def of_critic(self, images: Tensor, critic_step: int) -> Batch:
        return self._batch(images, "discriminator", self._iteration, critic_step)

    def of_generator(self, images: Tensor) -> Batch:
        return self._batch(images, "generator", self._iteration)

    def next_iteration(self) -> None:
        self._iteration += 1

    def _batch(self, images: Tensor, *key: int | str) -> Batch:
        noise = Noise(self._generator, (self._module.seed, *key))
        return {"image": images, **self._module.sample_noise(noise, len(images))}


class TutorialLoop:
    """The baseline: a backward pass for each term, torch's defaults, losses fetched in every step, nothing frozen.

    The generator's backward pass also computes weight gradients of the discriminators, which the next step discards.
    With one discriminator step, the generator's step reuses its generated images.

    Args:
        module: has the networks, in the default memory layout and float32.
    """

    def __init__(self, module: AdversarialModule) -> None:
        self.generator, self.n_critic = module.generator, module.n_critic
        self.discriminators = [module.get_submodule(name) for name in module.discriminator_names]
        self.names, self.tutorial, self.draws = module.discriminator_names, TUTORIALS[type(module)], _Draws(module)
        self.discriminator_optimizers = [
            module.discriminator_optimizer.build(network.parameters()) for network in self.discriminators
        ]
        self.generator_optimizer = module.generator_optimizer.build(self.generator.parameters())

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates all networks and returns the losses; the terms of all discriminators' losses are summed."""
        for critic_step, images in enumerate(real.chunk(self.n_critic)):
            for network in self.discriminators:
                network.zero_grad()
            fake = self.generator(self.draws.of_critic(images, critic_step)["latents"])
            discriminator_loss = 0.0
            for term in self.tutorial.terms(self.discriminators, images, fake.detach()):
                term.backward()
                discriminator_loss += term.item()
            for optimizer in self.discriminator_optimizers:
                optimizer.step()

        self.generator.zero_grad()
        if self.n_critic > 1:
            fake = self.generator(self.draws.of_generator(images)["latents"])
        generator_loss = self.tutorial.generator(self.discriminators, fake)
        generator_loss.backward()
        self.generator_optimizer.step()
        self.draws.next_iteration()
        return {self.names[0]: discriminator_loss, "generator": generator_loss.item()}


class BareLoop:
    """The iteration of this package in plain torch, and the work of the `EMA` callback, without Lightning.

    Args:
        module: has the networks and their losses.
        bf16: whether to compute in bfloat16 as Lightning's `bf16-mixed` does.
        ema_decay: as in the callback.
    """

    def __init__(self, module: AdversarialModule, bf16: bool, ema_decay: float) -> None:
        self.module, self.generator = module, module.generator
        self.bf16, self.ema_decay, self.iteration = bf16, ema_decay, 0
        self.training_step = TrainingStep(module, module.new_backend())
        self.average = copy.deepcopy(self.generator).eval().requires_grad_(False)

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates all networks and returns the losses, named as the networks."""
        # without the cache, as in Lightning: it would serve the weights from before an optimizer's step
        with torch.autocast(self.module.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            losses = self.training_step(real, self.iteration)
        self._move_average()
        return {**losses}

    @torch.no_grad()
    def _move_average(self) -> None:
        self.iteration += 1
        decay = min(self.ema_decay, (1 + self.iteration) / (10 + self.iteration))
        lerp_all([*self.average.parameters()], [*self.generator.parameters()], 1 - decay)
        for copied, current in zip(self.average.buffers(), self.generator.buffers(), strict=True):
            copied.copy_(current)


class MimicryLoop:
    """The step of torch-mimicry's trainer, with its own networks of 32x32 and their `train_step`.

    Args:
        folder: folder of the unpacked source package, in which `torch_mimicry` is.
        gan: `sngan` or `wgan_gp`.
        n_critic: number of discriminator steps.
        device: where to train.

    Raises:
        RefusedInput: the folder has no such package.
    """

    def __init__(self, folder: str, gan: str, n_critic: int, device: torch.device) -> None:
        if not Path(folder, "torch_mimicry/nets").is_dir():
            raise RefusedInput(
                f"mimicry={folder}: there is no folder torch_mimicry/nets in it; unpack the sdist there."
            )
        for name in ("torch_mimicry", "torch_mimicry.training"):  # whose __init__ import TensorFlow and more
            package = ModuleType(name)
            package.__path__ = [str(Path(folder, *name.split(".")))]
            sys.modules.setdefault(name, package)
        nets = importlib.import_module(f"torch_mimicry.nets.{gan}.{gan}_32")
        self._log = importlib.import_module("torch_mimicry.training.metric_log").MetricLog
        name = {"sngan": "SNGAN", "wgan_gp": "WGANGP"}[gan]
        self.networks = {
            "generator": getattr(nets, f"{name}Generator32")().to(device),
            "discriminator": getattr(nets, f"{name}Discriminator32")().to(device),
        }
        self._optimizers = {
            name: torch.optim.Adam(network.parameters(), 2e-4, betas=(0.0, 0.9))
            for name, network in self.networks.items()
        }
        self.n_critic, self.device = n_critic, device

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates both networks, as `torch_mimicry.training.Trainer.train` does, and returns their losses."""
        generator, discriminator = self.networks.values()
        common: dict[str, Any] = {"log_data": self._log(), "device": self.device, "scaler": None}
        for images in real.chunk(self.n_critic):
            batch = (images, None)
            discriminator.train_step(batch, netG=generator, optD=self._optimizers["discriminator"], **common)
        generator.train_step(batch, netD=discriminator, optG=self._optimizers["generator"], **common)
        return {"discriminator": common["log_data"]["errD"], "generator": common["log_data"]["errG"]}
