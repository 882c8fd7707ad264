"""The one training loop of every GAN. A GAN brings networks and losses; see `dcgan.py` for how little that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from lit_gans.checkpoints.format import CheckpointFiles, from_plain
from lit_gans.common.noise import Noise, mix, seed_dropout
from lit_gans.networks.spectral import SpectralNorm, one_power_iteration
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.module_networks import parameters_of
from lit_gans.training.augment import NUM_NUMBERS, Augmentation, augmented
from lit_gans.training.batch import Batch, prepare_batch, repeat_batch, split_batch
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.generative import GenerativeModule
from lit_gans.training.optim import Adam, Optimizer
from lit_gans.training.penalties import r1_penalty
from lit_gans.training.validation import refuse_settings, refuse_trainer


class AdversarialModule(GenerativeModule):
    """Trains a generator against its discriminators. One `training_step` is one generator iteration.

    The loader yields batch_size x n_critic x accumulate_gradients images; the step cuts them into sub-batches: n_critic
    discriminator updates, each on fresh real images and latents, then one generator update. `trainer.global_step`
    counts generator iterations.

    Args:
        image_size: height and width of the images.
        channels: channels of the images.
        latent_dim: length of a latent.
        n_critic: discriminator updates in an iteration.
        generator_batch_multiple: generated images in a generator update for each real image in a discriminator update.
        accumulate_gradients: parts into which each update's batch is cut; their mean gradient makes one step.
        clip_gradients: largest norm of a network's gradient, after unscaling.
        r1_gamma: weight of the R1 penalty on every discriminator (Mescheder et al. 2018); 0 is off.
        r1_every: iterations between two penalties, each then weighted `r1_every` times (Karras et al. 2020, B).
        generator_optimizer, discriminator_optimizer: each discriminator has an optimizer of its own.
        channels_last: memory layout of networks and images; faster convolutions on CPU and CUDA.
        compile: compiles the networks in place.
        diffaugment: how all that the discriminators see, real or fake, is augmented, for small data (Zhao et al. 2020).
        seed: of weights, latents and every other random number of the training.

    Raises:
        RefusedInput: a value that cannot work, with what would be right.
    """

    discriminator_names: ClassVar[tuple[str, ...]] = ("discriminator",)
    network_names: ClassVar[tuple[str, ...]]
    reuses_fake: ClassVar[bool] = False  # the last discriminator update's fake images serve the generator's update
    training_networks: tuple[str, ...] = ()  # the networks that the current update trains: the others are frozen
    backpropagated_network: str | None = None  # the one that the current backward trains

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.network_names = ("generator", *cls.discriminator_names)

    def __init__(
        self,
        *,
        image_size: int = 64,
        channels: int = 3,
        latent_dim: int = 100,
        n_critic: int = 1,
        generator_batch_multiple: int = 1,
        accumulate_gradients: int = 1,
        clip_gradients: float | None = None,
        r1_gamma: float = 0.0,
        r1_every: int = 1,
        generator_optimizer: Optimizer = Adam(learning_rate=2e-4, betas=(0.5, 0.999)),
        discriminator_optimizer: Optimizer = Adam(learning_rate=2e-4, betas=(0.5, 0.999)),
        channels_last: bool = True,
        compile: bool = False,
        diffaugment: tuple[Augmentation, ...] = (),
        seed: int = 0,
    ) -> None:
        received = dict(locals())
        super().__init__(seed=seed, channels_last=channels_last, compile=compile)
        self.automatic_optimization = False
        self.image_size, self.channels, self.latent_dim = image_size, channels, latent_dim
        self.n_critic, self.generator_batch_multiple = n_critic, generator_batch_multiple
        self.accumulate_gradients = accumulate_gradients
        self.clip_gradients_to = clip_gradients
        self.diffaugment = tuple(diffaugment)
        self.r1_gamma, self.r1_every = r1_gamma, r1_every
        self.generator_optimizer: Optimizer = from_plain(generator_optimizer)
        self.discriminator_optimizer: Optimizer = from_plain(discriminator_optimizer)
        self._record_hyperparameters(received)
        refuse_settings(self)

    # ---- what a GAN overrides

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns one scalar for each discriminator; `fake` carries no graph."""
        raise NotImplementedError

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generator's scalar; the discriminators are frozen."""
        raise NotImplementedError

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random tensors of one update, each with `num` rows; they join the batch."""
        return {"latents": noise.normal("latents", num, self.latent_dim)}

    def dummy_batch(self, num: int) -> Batch:
        """Returns an empty batch with what the networks are told, but for the images: `lit-gans describe` feeds it."""
        return {"latents": torch.empty(num, self.latent_dim), "label": torch.zeros(num, dtype=torch.long)}

    def augment(self, batch: Batch) -> Batch:
        """Returns a batch with what `sample_noise` drew applied to its images; as it is by default."""
        return batch

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor | None:
        """Returns which scores of a discriminator say that an image is real, or None where no score says so."""
        return scores > 0

    # ---- the loop

    @property
    def batches_per_step(self) -> int:
        """How many batches of the data's batch size the loader yields at once."""
        return self.n_critic * self.accumulate_gradients

    def training_step(self, data: Any, batch_idx: int) -> None:
        iteration = self.trainer.global_step
        seed_dropout(self.device, mix(self.seed, iteration, self.trainer.global_rank))  # after a resume too
        updates = split_batch(prepare_batch(data, self.channels_last), self.n_critic)
        reuses = self.reuses_fake and self.generator_batch_multiple == 1
        losses: dict[str, Tensor] = {}
        fakes: list[Tensor] | None = None
        for update, batch in enumerate(updates):
            parts = self._parts(batch, ("discriminator", iteration, update))
            share = reuses and update == self.n_critic - 1 and self.accumulate_gradients == 1
            fakes = [self.generate(self.generator, part) for part in parts] if share else None
            losses |= self._update_discriminators(parts, fakes, iteration)
        if not reuses:
            batch = repeat_batch(updates[-1], self.generator_batch_multiple)
            parts = self._parts(batch, ("generator", iteration))
        losses["generator"] = self._update_generator(parts, fakes)
        for scheduler in self._schedulers:
            scheduler.step()
        self.log_dict({f"loss/{name}": loss for name, loss in losses.items()}, prog_bar=True)

    def _update_discriminators(
        self, parts: list[Batch], fakes: list[Tensor] | None, iteration: int
    ) -> dict[str, Tensor]:
        total: dict[str, Tensor] = {}
        with self._training_only(self.discriminator_names):
            for index, part in enumerate(parts):
                if fakes is None:
                    with torch.no_grad():
                        fake = self.generate(self.generator, part)
                else:
                    fake = fakes[index].detach()
                # before the scores: their gradients then come first, and FSDP reduces after those of the penalty
                part, fake = part | {"image": self._seen(part["image"], part, 0)}, self._seen(fake, part, 1)
                penalties = {name: self._r1_term(name, part, iteration) for name in self.discriminator_names}
                losses = self.discriminator_losses(part["image"], fake, part)
                with self._synchronised_only_if(index == len(parts) - 1):
                    for name, loss in losses.items():
                        self.backpropagate((loss + penalties[name]) / len(parts), name)
                        total[name] = total.get(name, 0) + loss.detach() / len(parts)
            for name in self.discriminator_names:
                self.step_network(name)
        return total

    def _update_generator(self, parts: list[Batch], fakes: list[Tensor] | None) -> Tensor:
        total: Any = 0
        with self._training_only(("generator",)):
            for index, part in enumerate(parts):
                fake = fakes[index] if fakes else self.generate(self.generator, part)
                loss = self.generator_loss(self._seen(fake, part, 1), part)
                with self._synchronised_only_if(index == len(parts) - 1):
                    self.backpropagate(loss / len(parts), "generator")
                total = total + loss.detach() / len(parts)
            self.step_network("generator")
        return total

    def _r1_term(self, name: str, batch: Batch, iteration: int) -> Tensor | float:
        if not self.r1_gamma or iteration % self.r1_every:
            return 0.0
        penalty = r1_penalty(getattr(self, name), batch["image"], *self.condition(batch))
        return self.r1_gamma * self.r1_every * penalty

    # ---- vocabulary that the strategies share

    @property
    def penalised_networks(self) -> tuple[str, ...]:
        """Networks whose gradient is differentiated again."""
        return self.discriminator_names if self.r1_gamma else ()

    def backpropagate(self, loss: Tensor, network: str) -> None:
        """Adds the gradient of `loss` to the network's parameters."""
        named = getattr(self.trainer.strategy, "backward_names_network", False)
        self.backpropagated_network = network
        self.manual_backward(loss, **({"network": network} if named else {}))
        self.backpropagated_network = None

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks, without waiting for it on the host."""
        return self.trainer.strategy.reduce(value, reduce_op="mean")

    def step_network(self, network: str) -> None:
        """Steps the network's optimizer and clears its gradients. Only the generator's step counts in global_step."""
        optimizer = self._optimizers_by_name[network]
        if network == "generator":
            optimizer.step()
        else:  # past the LightningOptimizer, whose hooks do the counting
            self.trainer.strategy.optimizer_step(optimizer.optimizer, _nothing)
        optimizer.zero_grad()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.clip_gradients_to is not None and not getattr(self.trainer.strategy, "clips_gradients", False):
            torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), self.clip_gradients_to)

    @contextmanager
    def _training_only(self, names: tuple[str, ...]) -> Iterator[None]:
        """Freezes the other networks, so that their weight gradients are never computed."""
        self.training_networks = names
        for network, parameters in self._trainable.items():
            for parameter in parameters:
                parameter.requires_grad_(network in names)
        try:
            with one_power_iteration(self._spectral_norms):
                yield
        finally:
            self.training_networks = ()
            for parameters in self._trainable.values():
                for parameter in parameters:
                    parameter.requires_grad_(True)

    def _synchronised_only_if(self, last: bool) -> Any:
        block = getattr(self.trainer.strategy, "block_backward_sync", None)
        return nullcontext() if last or block is None else block()

    def _parts(self, batch: Batch, key: tuple[int | str, ...]) -> list[Batch]:
        ranks = (self.trainer.global_rank, self.trainer.world_size)
        noise = Noise(self._noise_generator, (self.seed, *key), *ranks, self.accumulate_gradients)
        num = len(batch["image"])
        batch = self.augment(batch | self.sample_noise(noise, num))
        if self.diffaugment:
            columns = sum(NUM_NUMBERS[name] for name in self.diffaugment)
            batch = batch | {"diffaugment": noise.uniform("diffaugment", num, 2, columns)}
        return split_batch(batch, self.accumulate_gradients)

    def _seen(self, images: Tensor, part: Batch, which: int) -> Tensor:
        """Returns what the discriminators see of real (0) or fake (1) images."""
        return augmented(images, self.diffaugment, part["diffaugment"][:, which]) if self.diffaugment else images

    # ---- Lightning's hooks

    def setup(self, stage: str) -> None:
        refuse_trainer(self, self.trainer)
        if type(self.trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            self.trainer.strategy.checkpoint_io = CheckpointFiles()
        plugin = self.trainer.precision_plugin
        if type(plugin) is MixedPrecision and plugin.scaler is not None:
            # a scaler that the user set is copied for each network
            self.trainer.strategy.precision_plugin = NetworkScaling(plugin.device, partial(deepcopy, plugin.scaler))

    def configure_optimizers(self) -> list[dict[str, Any]]:
        # a gradient scaler must unscale before clipping, which a fused step would do inside itself
        fused = getattr(self.trainer.precision_plugin, "scaler", None) is None and self.device.type in ("cpu", "cuda")
        configured = []
        for name in self.network_names:
            settings = self.generator_optimizer if name == "generator" else self.discriminator_optimizer
            parameters = [p for p in getattr(self, name).parameters() if p.requires_grad]
            optimizer = settings.build(parameters, fused)
            total = self.trainer.estimated_stepping_batches if settings.schedule.needs_total else 0
            scheduler = LambdaLR(optimizer, partial(settings.schedule.factor, total=total))
            configured.append({"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "name": name}})
        return configured

    def on_train_start(self) -> None:
        optimizers = self.optimizers()
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        self._optimizers_by_name = dict(zip(self.network_names, optimizers, strict=True))
        self._schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        self._trainable = {
            name: [p for p in getattr(self, name).parameters() if p.requires_grad] for name in self.network_names
        }
        self._spectral_norms = [layer for layer in self.modules() if isinstance(layer, SpectralNorm)]
        self._noise_generator = torch.Generator(device=self.device)

    def on_train_end(self) -> None:
        self.gather_generator()  # `sample` after the fit

    def on_fit_start(self) -> None:
        updates_average = any(
            isinstance(callback, GenerativeCallback) and callback.updates_average for callback in self.trainer.callbacks
        )
        if self.averaged_generator is not None and not updates_average:
            rank_zero_warn("no EMA callback: the checkpoint's averaged generator would go stale and is dropped.")
            object.__setattr__(self, "averaged_generator", None)


def _nothing() -> None:
    """The closure of an optimizer step whose gradients are already there."""
