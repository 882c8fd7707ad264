"""Two manual training loops of DCGAN without Lightning: as in tutorials, and equivalent to this library's step."""

from __future__ import annotations

import copy
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common._compat.torch import lerp_all
from lit_gans.common.noise import Noise
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.losses import logistic_discriminator, non_saturating_generator

LEARNING_RATE, BETAS = 2e-4, (0.5, 0.999)  # Radford et al. 2016, section 4


@runtime_checkable
class Loop(Protocol):
    """A training loop that runs one step at a time."""

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates both networks and returns the losses, named as the networks."""
        ...


class _Latents:
    """The latents of `AdversarialModule`, so that every loop uses the same."""

    def __init__(self, module: DCGAN) -> None:
        self._seed, self._size, self._iteration = module.seed, module.latent_dim, 0
        self._generator = torch.Generator(device=module.device)

    def next(self, num: int) -> Float[Tensor, "n z"]:
        noise = Noise(self._generator, (self._seed, "discriminator", self._iteration, 0))
        self._iteration += 1
        return noise.normal("latents", num, self._size)


class TutorialLoop:
    """The baseline: three backward passes, torch's defaults, losses fetched in every step, nothing frozen.

    The generator's backward pass also computes weight gradients of the discriminator, which the next step discards.

    Args:
        module: has the networks, in the default memory layout and float32.
    """

    def __init__(self, module: DCGAN) -> None:
        self.generator, self.discriminator = module.generator, module.get_submodule("discriminator")
        self.latents = _Latents(module)
        self.criterion = nn.BCEWithLogitsLoss()
        self.discriminator_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=LEARNING_RATE, betas=BETAS)
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), lr=LEARNING_RATE, betas=BETAS)

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates both networks and returns the losses, named as the networks."""
        ones = torch.full((len(real),), 1.0, device=real.device)
        zeros = torch.full((len(real),), 0.0, device=real.device)

        self.discriminator.zero_grad()
        loss_on_real = self.criterion(self.discriminator(real), ones)
        loss_on_real.backward()
        fake = self.generator(self.latents.next(len(real)))
        loss_on_fake = self.criterion(self.discriminator(fake.detach()), zeros)
        loss_on_fake.backward()
        self.discriminator_optimizer.step()

        self.generator.zero_grad()
        generator_loss = self.criterion(self.discriminator(fake), ones)
        generator_loss.backward()
        self.generator_optimizer.step()
        return {"discriminator": loss_on_real.item() + loss_on_fake.item(), "generator": generator_loss.item()}


class BareLoop:
    """The work of `DCGAN.training_step` and of the `EMA` callback, and nothing else.

    It has no schedulers and does not seed dropout, which a loop for this one model would not need: they count as
    overhead of the library.

    Args:
        module: has the networks.
        bf16: whether to compute in bfloat16 as Lightning's `bf16-mixed` does.
        ema_decay: as in the callback.
    """

    def __init__(self, module: DCGAN, bf16: bool, ema_decay: float) -> None:
        self.generator, self.discriminator = module.generator, module.get_submodule("discriminator")
        self.latents = _Latents(module)
        self.device, self.bf16, self.ema_decay, self.iteration = module.device, bf16, ema_decay, 0
        self.optimizers = {
            name: torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, betas=BETAS, fused=True)
            for name, network in (("generator", self.generator), ("discriminator", self.discriminator))
        }
        self.average = copy.deepcopy(self.generator).eval().requires_grad_(False)

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates both networks and returns the losses, named as the networks."""
        # without the cache, as in Lightning: it would serve the weights from before an optimizer's step
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            real = real.contiguous(memory_format=torch.channels_last)
            fake = self.generator(self.latents.next(len(real)))
            discriminator_loss = logistic_discriminator(self.discriminator(real), self.discriminator(fake.detach()))
            discriminator_loss.backward()
            self._update("discriminator")

            self.discriminator.requires_grad_(False)
            generator_loss = non_saturating_generator(self.discriminator(fake))
            generator_loss.backward()
            self.discriminator.requires_grad_(True)
            self._update("generator")
        self._move_average()
        return {"discriminator": discriminator_loss.detach(), "generator": generator_loss.detach()}

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
