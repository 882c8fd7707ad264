"""Two manual training loops without Lightning: as in tutorials, and equivalent to this library's step."""

from __future__ import annotations

import copy
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.tutorials import tutorial_of
from lit_gans.common._compat.torch import lerp_all
from lit_gans.common.noise import Noise
from lit_gans.networks.spectral import OnePowerIteration, SpectralNorm
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.batch import Batch
from lit_gans.training.scored import loss_of


@runtime_checkable
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
        return cast(Batch, {"image": images, **self._module.sample_noise(noise, len(images))})


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
        self.names, self.tutorial, self.draws = module.discriminator_names, tutorial_of(module), _Draws(module)
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
    """The work of `AdversarialModule.training_step` and of the `EMA` callback, and nothing else.

    It has no schedulers, penalties or microbatches and does not seed dropout, which a loop for one model would not
    need: they count as overhead of the library.

    Args:
        module: has the networks and their losses.
        bf16: whether to compute in bfloat16 as Lightning's `bf16-mixed` does.
        ema_decay: as in the callback.
    """

    def __init__(self, module: AdversarialModule, bf16: bool, ema_decay: float) -> None:
        self.module, self.generator, self.draws = module, module.generator, _Draws(module)
        self.discriminators = [module.get_submodule(name) for name in module.discriminator_names]
        self.spectral_norms = [layer for layer in module.modules() if isinstance(layer, SpectralNorm)]
        self.device, self.bf16, self.ema_decay, self.iteration = module.device, bf16, ema_decay, 0
        self.optimizers = {
            name: settings.build(module.get_submodule(name).parameters(), fused=True)
            for name, settings in [
                ("generator", module.generator_optimizer),
                *((name, module.discriminator_optimizer) for name in module.discriminator_names),
            ]
        }
        self.average = copy.deepcopy(self.generator).eval().requires_grad_(False)

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates all networks and returns the losses, named as the networks."""
        losses: dict[str, Any] = {}
        # without the cache, as in Lightning: it would serve the weights from before an optimizer's step
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            real = real.contiguous(memory_format=torch.channels_last)
            for critic_step, images in enumerate(real.chunk(self.module.n_critic)):
                batch = self.draws.of_critic(images, critic_step)
                with torch.set_grad_enabled(self.module.reuses_fake):
                    fake = self.generator(batch["latents"])
                with OnePowerIteration(self.spectral_norms):
                    outputs = self.module.discriminator_losses(images, fake.detach(), batch)
                    for name, output in outputs.items():
                        losses[name] = loss_of(output)
                        losses[name].backward()
                for name in outputs:
                    self._update(name)

            if not self.module.reuses_fake:
                batch = self.draws.of_generator(images.repeat_interleave(self.module.generator_batch_multiple, 0))
            self._train_generator(batch, fake, losses)
        self._move_average()
        self.draws.next_iteration()
        return {name: loss.detach() for name, loss in losses.items()}

    def _train_generator(self, batch: Batch, fake: Tensor, losses: dict[str, Any]) -> None:
        for network in self.discriminators:
            network.requires_grad_(False)
        with OnePowerIteration(self.spectral_norms):
            if not self.module.reuses_fake:
                fake = self.generator(batch["latents"])
            losses["generator"] = self.module.generator_loss(fake, batch)
            losses["generator"].backward()
        for network in self.discriminators:
            network.requires_grad_(True)
        self._update("generator")

    def _update(self, name: str) -> None:
        self.optimizers[name].step()
        self.optimizers[name].zero_grad()

    @torch.no_grad()
    def _move_average(self) -> None:
        self.iteration += 1
        decay = min(self.ema_decay, (1 + self.iteration) / (10 + self.iteration))
        lerp_all([*self.average.parameters()], [*self.generator.parameters()], 1 - decay)
        for copied, current in zip(self.average.buffers(), self.generator.buffers(), strict=True):
            copied.copy_(current)
