"""The training loop that all GANs share. A GAN defines networks and losses: see `lit_gans/models/dcgan.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, cast

import torch
from lightning.pytorch import Callback
from torch import Tensor

from lit_gans.checkpoints.format import from_plain
from lit_gans.common.noise import Noise, mix, seed_dropout
from lit_gans.training.attached import callbacks_of, is_logged
from lit_gans.training.augment import Augmentation
from lit_gans.training.augmentation import Augmenter
from lit_gans.training.batch import Batch, Inputs, prepare_batch, repeat_batch, share_of_loss, split_batch
from lit_gans.training.callback import GenerativeCallback, reads_losses
from lit_gans.training.epochs import begin_epoch_after_resume
from lit_gans.training.finite import LOSS
from lit_gans.training.judging import JudgedModule
from lit_gans.training.optim import Optimizer
from lit_gans.training.plain import inspected_once
from lit_gans.training.schedules import Number
from lit_gans.training.validation import refuse_settings, refuse_trainer


class AdversarialModule(JudgedModule):
    """Trains a generator against its discriminators. One `training_step` is one generator iteration.

    The loader yields batch_size x n_critic x accumulate_gradients images, which `training_step` splits over n_critic
    discriminator steps, each with new real images and latents; one generator step follows. `trainer.global_step`
    counts generator iterations.

    Args:
        image_size: height and width of the images.
        channels: number of channels of the images.
        latent_dim: length of a latent.
        n_critic: number of discriminator steps per iteration.
        generator_batch_multiple: number of generated images in a generator step per real image in a discriminator
            step.
        accumulate_gradients: number of microbatches per step; the step uses their mean gradient.
        clip_gradients: maximum norm of a network's gradient, after unscaling; null disables clipping.
        r1_gamma: weight of the R1 penalty on every discriminator (Mescheder et al. 2018); 0 disables it; may be a
            schedule.
        r2_gamma: weight of the R2 penalty, which is R1 at the generated images; 0 disables it; may be a schedule.
        r1_every: applies R1 and R2 every `r1_every` iterations, weighted `r1_every` times (Karras et al. 2020, B).
        share_scores: whether R1 and R2 differentiate the scores of the losses, with respect to the images before their
            augmentation: that costs no forward, and computes in the precision of the training. Otherwise each has a
            forward of its own, in float32, on the augmented images.
        generator_optimizer, discriminator_optimizer: optimizer settings; each discriminator gets its own optimizer.
        channels_last: whether networks and images use the channels-last memory layout, which makes convolutions faster
            on CPU and CUDA.
        compile: whether to compile the networks, in place; passes whose graph a gradient penalty differentiates twice
            run uncompiled.
        diffaugment: augmentations of all images that the discriminators see, for small datasets (Zhao et al. 2020).
        augmentation: blits, geometry, color and cutout of all images that the discriminators see, with a probability
            that is scheduled or adaptive (Karras et al. 2020); null for none.
        seed: seed of weights, latents and all other random numbers of the training.

    Raises:
        RefusedInput: a value is out of range.
    """

    reuses_fake: ClassVar[bool] = False  # the generator's step reuses the last generated images

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
        r1_gamma: Number = 0.0,
        r2_gamma: Number = 0.0,
        r1_every: int = 1,
        share_scores: bool = False,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.5, 0.999)),
        discriminator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.5, 0.999)),
        channels_last: bool = True,
        compile: bool = False,
        diffaugment: tuple[Augmentation, ...] = (),
        augmentation: Augmenter | None = None,
        seed: int = 0,
    ) -> None:
        received = dict(locals())
        super().__init__(
            r1_gamma=r1_gamma,
            r2_gamma=r2_gamma,
            r1_every=r1_every,
            share_scores=share_scores,
            diffaugment=diffaugment,
            augmentation=augmentation,
            generator_optimizer=from_plain(generator_optimizer),
            discriminator_optimizer=from_plain(discriminator_optimizer),
            clip_gradients=clip_gradients,
            seed=seed,
            channels_last=channels_last,
            compile=compile,
        )
        self._received = received
        self.image_size, self.channels, self.latent_dim = image_size, channels, latent_dim
        self.n_critic, self.generator_batch_multiple = n_critic, generator_batch_multiple
        self.accumulate_gradients = accumulate_gradients
        self.losses: dict[str, Tensor] = {}  # of each network in the last iteration, on the device
        self._losses_are_read = True  # by a callback, in every iteration
        refuse_settings(self)

    # ---- what a GAN overrides

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generator's scalar loss; the discriminators are frozen.

        The real images are `batch["image"]`, augmented as in the discriminators' step.
        """
        raise NotImplementedError

    def sample_noise(self, noise: Noise, num: int) -> Inputs:
        """Returns the random tensors of one step, each with `num` rows; they are added to the batch."""
        return {"latents": noise.normal("latents", num, self.latent_dim)}

    def dummy_batch(self, num: int) -> Inputs:
        """Returns a batch without images and noise, with the shapes that the networks expect."""
        return {"latents": torch.empty(num, self.latent_dim), "label": torch.zeros(num, dtype=torch.long)}

    def augment(self, batch: Batch) -> Batch:
        """Returns a batch with the noise of `sample_noise` applied to its images; unchanged by default."""
        return batch

    @property
    def network_names(self) -> tuple[str, ...]:
        """Names of the generator and the discriminators."""
        return ("generator", *self.discriminator_names)

    # ---- the loop

    @property
    def batches_per_step(self) -> int:
        """Number of batches, of the data's batch size, that the loader yields per step."""
        return self.n_critic * self.accumulate_gradients

    @inspected_once
    def training_step(self, data: Any, batch_idx: int) -> None:
        iteration = self.trainer.global_step
        seed_dropout(self.device, mix(self.seed, iteration, self._ranks[0]))  # the same after a resume
        batch = prepare_batch(data, self.channels_last)
        self.start_iteration(iteration, len(batch["image"]))
        batches = split_batch(batch, self.n_critic)
        weights = self.penalty_weights(iteration)
        reuses = self.reuses_fake and self.generator_batch_multiple == 1
        shares = reuses and self.accumulate_gradients == 1
        losses: dict[str, Tensor] = {}
        fakes: list[Tensor] | None = None
        # frozen once for all critic steps, unless one of them needs the generator's graph
        with nullcontext() if shares else self.training_only(self.discriminator_names):
            for critic_step, batch in enumerate(batches):
                microbatches = self._microbatches(batch, ("discriminator", iteration, critic_step))
                share = shares and critic_step == self.n_critic - 1
                fakes = [self.generate(self.generator, micro) for micro in microbatches] if share else None
                losses |= self._train_discriminators(microbatches, fakes, weights)
        if not reuses:
            batch = repeat_batch(batches[-1], self.generator_batch_multiple)
            microbatches = self._microbatches(batch, ("generator", iteration))
        losses["generator"] = self._train_generator(microbatches, fakes)
        self.end_iteration(iteration + 1)
        self.adapt_augmentation()
        self.step_schedules()
        self.losses = losses
        if self._losses_are_read:
            self._log_losses(prog_bar=self._bar_needs_numbers)
        elif is_logged(self.trainer):
            # a progress bar would copy its values from the device in every iteration from now on
            self._log_losses(prog_bar=False)

    def _train_discriminators(
        self, microbatches: list[Batch], fakes: list[Tensor] | None, weights: Mapping[str, float]
    ) -> dict[str, Tensor]:
        total: dict[str, Tensor] = {}
        with self.training_only(self.discriminator_names):
            for index, batch in enumerate(microbatches):
                if fakes is None:
                    with torch.no_grad():
                        fake = self.generate(self.generator, batch)
                else:
                    fake = fakes[index].detach()
                losses, penalties = self.losses_and_penalties(batch, fake, weights)
                with self.synchronized_only_if(index == len(microbatches) - 1):
                    for name, loss in losses.items():
                        penalty = penalties[name]
                        objective = loss + penalty if isinstance(penalty, Tensor) else loss
                        self.backpropagate(share_of_loss(objective, len(microbatches)), name)
                        share = share_of_loss(loss.detach(), len(microbatches))
                        total[name] = total[name] + share if name in total else share
            for name in self.discriminator_names:
                self.step_network(name)
        return total

    def _train_generator(self, microbatches: list[Batch], fakes: list[Tensor] | None) -> Tensor:
        total: Tensor | None = None
        with self.training_only(("generator",)):
            for index, batch in enumerate(microbatches):
                fake = fakes[index] if fakes else self.generate(self.generator, batch)
                seen, fake = self.augmented_images(batch, fake)
                loss = self.generator_loss(fake, seen)
                with self.synchronized_only_if(index == len(microbatches) - 1):
                    self.backpropagate(share_of_loss(loss, len(microbatches)), "generator")
                share = share_of_loss(loss.detach(), len(microbatches))
                total = share if total is None else total + share
                self.finite.add(LOSS, "generator", loss)
            self.step_network("generator")
        return cast(Tensor, total)

    def _microbatches(self, batch: Batch, key: tuple[int | str, ...]) -> list[Batch]:
        """Adds this rank's noise for one step to its batch and splits the batch into microbatches."""
        noise = Noise(self._noise_generator, (self.seed, *key), *self._ranks, self.accumulate_gradients)
        num = len(batch["image"])
        batch = self.augment(cast(Batch, {**batch, **self.sample_noise(noise, num)}))
        return split_batch(cast(Batch, {**batch, **self.augmentation_noise(noise, num)}), self.accumulate_gradients)

    # ---- Lightning's hooks

    def setup(self, stage: str) -> None:
        refuse_trainer(self, self.trainer)
        super().setup(stage)

    def on_train_start(self) -> None:
        super().on_train_start()
        begin_epoch_after_resume(self.trainer)
        self._losses_are_read = any(reads_losses(each) for each in callbacks_of(self.trainer, Callback))
        self._noise_generator = torch.Generator(device=self.device)
        self._ranks = self.trainer.global_rank, self.trainer.world_size
        # Lightning converts what a bar shows to numbers at every look at any logged value, which waits for the device;
        # this package's bar reads the tensors
        bar = self.trainer.progress_bar_callback
        self._bar_needs_numbers = bar is not None and not isinstance(bar, GenerativeCallback)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._losses_are_read and self.trainer.should_stop:  # as a callback has just asked
            self._log_losses(prog_bar=False)

    def _log_losses(self, prog_bar: bool) -> None:
        self.log_dict(self.augmentation_log() | {f"loss/{n}": x for n, x in self.losses.items()}, prog_bar=prog_bar)
