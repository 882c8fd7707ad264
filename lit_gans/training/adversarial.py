"""The module that all GANs derive from: its networks, one training loop, samples and checkpoints, in reading order.

A GAN defines networks and losses: see `lit_gans/models/dcgan.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from lit_gans.checkpoints.format import (
    EMA_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    CheckpointFiles,
    class_path,
    from_plain,
    read_checkpoint,
    to_plain,
)
from lit_gans.common._compat.lightning import begin_epoch_after_resume, count_step, reopen_epoch, use_by_default
from lit_gans.common.annotations import converts_numbers
from lit_gans.common.compilation import uncompiled
from lit_gans.common.errors import RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.identity import digest_of_object, is_versioned
from lit_gans.common.noise import Noise, forked, mix, seed_dropout
from lit_gans.common.size import Size, as_size, sides
from lit_gans.networks.spectral import SpectralNorm, one_power_iteration
from lit_gans.strategies.base import (
    NetworkStrategy,
    backward_arguments,
    block_backward_sync,
    clips_gradients,
    sharding,
)
from lit_gans.strategies.grad_scaling import NetworkScaling, scale_each_network
from lit_gans.strategies.module_networks import parameters_of
from lit_gans.training.augmentation import Augmentations, Augmenter
from lit_gans.training.batch import (
    Batch,
    doubt_about_range,
    prepare_batch,
    refuse_data,
    repeat_batch,
    share_of_loss,
    split_batch,
)
from lit_gans.training.callback import (
    GenerativeCallback,
    attached_trainer,
    callbacks_of,
    num_iterations,
    reads_every_loss,
)
from lit_gans.training.construction import constructor_arguments
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.finite import LOSS, PENALTY, SCALE, FiniteCheck
from lit_gans.training.hyperparameters import log_hyperparameters
from lit_gans.training.losses import Scored, flat_scores, loss_of, scores_of
from lit_gans.training.optim import Optimizer, OptionScheduler, arrange_as_weights
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty
from lit_gans.training.refusals import INSTEAD_OF_TRAINER, refuse_arguments, refuse_trainer
from lit_gans.training.resuming import (
    changed_settings,
    claim_states,
    of_class,
    refuse_other_architecture,
    refuse_other_optimizers,
    warn_if_code_changed,
)
from lit_gans.training.sampling import GeneratorCopies, Weights, evaluating
from lit_gans.training.schedules import Number, Progress, is_zero, refuse_weights, value_at
from lit_gans.training.transfer import freeze_finest

logger = logging.getLogger(__name__)

Terms = dict[str, tuple[Tensor, Tensor | None]]  # loss and penalty of each network


class AdversarialModule(LightningModule):
    """Trains a generator against its discriminators. One `training_step` is one generator iteration.

    The loader yields batch_size x n_critic x accumulate_gradients images, which `training_step` splits over n_critic
    discriminator steps, each with new real images and latents; one generator step follows. `trainer.global_step`
    counts generator iterations.

    A constructor builds the networks as attributes, `generator` and one for each of `discriminator_names`, inside
    `with self.building():`, so that their weights depend on `seed` alone.

    A checkpoint contains `state_dict` (`generator.…`, `discriminator.…`), `generator_ema` (averaged generator), and
    `lit_gans` with the format version and the class.

    Args:
        image_size: height and width of the images: one number for squares, or [height, width].
        channels: number of channels of the images.
        latent_dim: length of a latent.
        n_critic: number of discriminator steps per iteration.
        generator_batch_multiple: number of generated images in a generator step per real image in a discriminator
            step.
        accumulate_gradients: number of microbatches per step; the step uses their mean gradient.
        clip_gradients: maximum norm of a network's gradient, after unscaling; null disables clipping.
        r1_gamma: weight of the R1 penalty on every discriminator (Mescheder et al. 2018); 0 disables it; may be a
            schedule. Batch norm is allowed: the gradient of an image then includes its effect on the scores of the
            other images in the batch, see `r1_penalty`.
        r2_gamma: weight of the R2 penalty, which is R1 at the generated images; 0 disables it; may be a schedule.
        r1_every: applies R1 and R2 every `r1_every` iterations, weighted `r1_every` times (Karras et al. 2020, B). They
            are part of the iteration's optimizer step, so that learning rate and betas need no correction.
        share_scores: whether R1 and R2 differentiate the scores of the losses, with respect to the images before their
            augmentation: that costs no forward, and computes in the precision of the training. Otherwise each has a
            forward of its own, in float32, on the augmented images.
        generator_optimizer: settings of the generator's optimizer.
        discriminator_optimizer: settings of the discriminators' optimizers; each gets its own.
        channels_last: whether networks and images use the channels-last memory layout, which makes convolutions faster
            on CPU and CUDA.
        compile: whether to compile the networks, in place; passes whose graph a gradient penalty differentiates twice
            run uncompiled.
        freeze_discriminator: number of convolutions of each discriminator, from the images on, that keep their weights,
            which is for fine-tuning (Mo et al. 2020).
        diffaugment: augmentations of all images that the discriminators see, for small datasets (Zhao et al. 2020).
        augmentation: a pipeline of augmentations of all images that the discriminators see, with a probability that is
            scheduled or adaptive (Karras et al. 2020); null for none.
        seed: seed of weights, latents and all other random numbers of the training.

    Raises:
        RefusedInput: a value is out of range.
    """

    generator: nn.Module
    discriminator: nn.Module  # or one attribute for each of `discriminator_names`
    discriminator_names: ClassVar[tuple[str, ...]] = ("discriminator",)
    instead_of_trainer: ClassVar[Mapping[str, str]] = INSTEAD_OF_TRAINER
    reuses_fake: ClassVar[bool] = False  # the generator's step reuses the last generated images
    generator_first: ClassVar[bool] = False  # the generator steps before the discriminators, on those same images
    num_classes: int = 0  # number of classes that the generator is conditioned on
    trains_against: tuple[str, ...] = ()  # extractors whose networks are part of a loss, and thus no judges

    # set at the start of each training
    _optimizers_by_name: dict[str, torch.optim.Optimizer]
    _trainable: dict[str, list[nn.Parameter]]
    _spectral_norms: list[SpectralNorm]
    _noise_generator: torch.Generator
    _logs_every_loss: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = converts_numbers(cls.__init__)  # type: ignore[method-assign]

    @converts_numbers
    def __init__(
        self,
        *,
        image_size: Size = 64,
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
        freeze_discriminator: int = 0,
        diffaugment: tuple[Augmentation, ...] = (),
        augmentation: Augmenter | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        refuse_below(1, latent_dim=latent_dim, n_critic=n_critic, r1_every=r1_every)
        refuse_below(1, generator_batch_multiple=generator_batch_multiple, accumulate_gradients=accumulate_gradients)
        refuse_below(0, freeze_discriminator=freeze_discriminator)
        refuse_not_positive(clip_gradients=clip_gradients)
        refuse_weights(r1_gamma=r1_gamma, r2_gamma=r2_gamma)
        self.save_hyperparameters(to_plain(constructor_arguments(self)), logger=False)
        self.automatic_optimization = False
        self.image_size, self.channels, self.latent_dim = as_size(image_size), channels, latent_dim
        self.n_critic, self.generator_batch_multiple = n_critic, generator_batch_multiple
        self.accumulate_gradients, self.clip_gradients_to = accumulate_gradients, clip_gradients
        self.r1_gamma, self.r2_gamma, self.r1_every, self.share_scores = r1_gamma, r2_gamma, r1_every, share_scores
        self.generator_optimizer, self.discriminator_optimizer = generator_optimizer, discriminator_optimizer
        self.freeze_discriminator = freeze_discriminator
        self.channels_last, self.compile_networks, self.seed = channels_last, compile, seed
        self.augmentations = Augmentations(tuple(diffaugment), augmentation)
        self.finite = FiniteCheck((*self.discriminator_names, "generator"))
        self.losses: dict[str, Tensor] = {}  # of each network in the last iteration, on the device
        self.terms: dict[str, Tensor] = {}  # further values to log, of the last microbatch, on the device
        self.progress = Progress()  # at the start of the current iteration
        self._copies = GeneratorCopies()
        self._is_built = False

    @contextmanager
    def building(self) -> Iterator[None]:
        """Context in which a constructor builds the networks.

        Weights depend on `seed` alone, whatever the state of the global random generators. At its end, the networks get
        their memory layout and are compiled.
        """
        with forked():
            torch.manual_seed(mix(self.seed, "networks"))
            yield
        self._finish_networks()

    def _finish_networks(self) -> None:
        for name in self.network_names:
            network = self.get_submodule(name)
            if self.channels_last:
                network.to(memory_format=torch.channels_last)
            if self.compile_networks:
                network.compile()  # in place, so that state-dict keys do not change
            if self.freeze_discriminator and name != "generator":
                freeze_finest(network, self.freeze_discriminator)
        self._is_built = True

    def rebuilt(self) -> AdversarialModule:
        """Returns a module constructed with the same arguments, and thus untrained."""
        with forked():
            return type(self)(**{name: from_plain(value) for name, value in self.hparams.items()})

    # ---- what a GAN overrides

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> Mapping[str, Tensor | Scored]:
        """Returns the loss of each discriminator with its scores; `fake` has no graph to the generator.

        A scalar without scores is enough where nothing reads the scores.
        """
        raise NotImplementedError

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generator's scalar loss; the discriminators are frozen.

        The real images are `batch["image"]`, augmented as the discriminators see them.
        """
        raise NotImplementedError

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random tensors of one step, each with `num` rows; they are added to the batch."""
        return {"latents": noise.normal("latents", num, self.latent_dim)}

    def augment(self, batch: Batch) -> Batch:
        """Returns a batch with the noise of `sample_noise` applied to its images; unchanged by default."""
        return batch

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Generates samples in [-1, 1] from a batch with `generator`, the trained or the averaged one."""
        images: Tensor = generator(batch["latents"], *self.fake_condition(batch))
        return images

    def with_fake(self, batch: Batch) -> Batch:
        """Returns a training batch with the generated images, `fake`, with their graph to the generator.

        The images of both steps come from here, by default from `generate`. A GAN whose training images differ from its
        samples overrides this method. It may add further tensors of the forward pass, with one row for each image.
        """
        return {**batch, "fake": self.generate(self.generator, batch)}

    @property
    def trains_discriminators(self) -> bool:
        """Whether this iteration trains the discriminators; always by default."""
        return True

    def condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that the networks are conditioned on, for example labels; none by default."""
        return ()

    def fake_condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that generated images are conditioned on; by default those of the real images."""
        return self.condition(batch)

    def real_images(self, batch: Batch) -> Tensor:
        """Returns the real images of a batch that the discriminators see.

        Those of several domains lie side by side along the channels, as in what `generate` makes of such a batch.
        """
        return batch["image"]

    def part_for(self, discriminator: str, images: Tensor) -> Tensor:
        """Returns what a discriminator, given by its name, sees of real or generated images; all of it by default."""
        return images

    def replayed(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generated images that the discriminators train on; those of this step by default."""
        return fake

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor | None:
        """Returns which scores of a discriminator classify an image as real; `None` if its scores have no threshold.

        Args:
            name: name of the discriminator.
            scores: all scores that it returned, as a vector.
        """
        return scores > 0

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        """Names of the networks whose gradient is differentiated twice."""
        return () if is_zero(self.r1_gamma) and is_zero(self.r2_gamma) else self.discriminator_names

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if the networks cannot train on the first batch of a loader; passes by default."""

    def dummy_batch(self, num: int) -> Batch:
        """Returns a batch without images and noise, with the shapes that the networks expect."""
        return {"latents": torch.empty(num, self.latent_dim), "label": torch.zeros(num, dtype=torch.long)}

    # ---- the loop

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        return self.channels, *sides(self.image_size)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Names of the generator and the discriminators."""
        return ("generator", *self.discriminator_names)

    @property
    def batches_per_step(self) -> int:
        """Number of batches, of the data's batch size, that the loader yields per step."""
        return self.n_critic * self.accumulate_gradients

    def training_step(self, data: Any, batch_idx: int) -> None:
        iteration = self.trainer.global_step
        seed_dropout(self.device, mix(self.seed, iteration, self.rank_of[0]))  # the same after a resume
        batch = prepare_batch(data, self.channels_last)
        self.progress = self.progress.next(iteration, len(batch["image"]) * self.trainer.world_size)
        reuses_latents = self.reuses_fake and self.generator_batch_multiple == 1
        shares_forward = reuses_latents and self.accumulate_gradients == 1  # its graph serves both steps
        losses: dict[str, Tensor] = {}
        real = split_batch(batch, self.n_critic)
        for critic_step, own in enumerate(real):
            microbatches = self._microbatches(own, ("discriminator", iteration, critic_step))
            last = critic_step == self.n_critic - 1
            if shares_forward and last:
                microbatches[0] = self.with_fake(microbatches[0])
            seen = microbatches
            if self.generator_first and last:
                seen = [self._with_detached_fake(each) for each in microbatches]
                losses |= self._update(("generator",), microbatches, self.generator_terms)
            if self.trains_discriminators:
                losses |= self._update(self.discriminator_names, seen, self.discriminator_terms)
        if not self.generator_first:
            if reuses_latents:  # the generator's step has the microbatches of the last critic step
                microbatches = self._augmented_anew(microbatches, ("generator", iteration))
            else:
                own = repeat_batch(real[-1], self.generator_batch_multiple)
                microbatches = self._microbatches(own, ("generator", iteration))
            losses |= self._update(("generator",), microbatches, self.generator_terms)
        self.losses = losses
        self._end_iteration(iteration + 1)

    def _with_detached_fake(self, batch: Batch) -> Batch:
        """Returns a batch with its generated images, which stay what they are when the generator steps."""
        if "fake" not in batch:
            with torch.no_grad():
                batch = self.with_fake(batch)
        return {**batch, "fake": batch["fake"].detach()}

    def _augmented_anew(self, microbatches: list[Batch], key: tuple[int | str, ...]) -> list[Batch]:
        """Returns microbatches of an earlier step with new random numbers of the augmentations."""
        num = sum(len(batch["image"]) for batch in microbatches)
        drawn = self.augmentations.noise(self._step_noise(key), num)
        parts = {name: tensor.chunk(len(microbatches)) for name, tensor in drawn.items()}
        return [{**batch, **{name: part[i] for name, part in parts.items()}} for i, batch in enumerate(microbatches)]

    def _step_noise(self, key: tuple[int | str, ...]) -> Noise:
        return Noise(self._noise_generator, (self.seed, *key), *self.rank_of, self.accumulate_gradients)

    def _microbatches(self, batch: Batch, key: tuple[int | str, ...]) -> list[Batch]:
        """Adds this rank's noise for one step to its batch and splits the batch into microbatches."""
        noise = self._step_noise(key)
        num = len(batch["image"])
        batch = self.augment({**batch, **self.sample_noise(noise, num)})
        return split_batch({**batch, **self.augmentations.noise(noise, num)}, self.accumulate_gradients)

    def _update(
        self, names: tuple[str, ...], microbatches: list[Batch], terms_of: Callable[[Batch], Terms]
    ) -> dict[str, Tensor]:
        """Steps networks once on the mean gradient of microbatches, while all others are frozen.

        Args:
            names: names of the networks.
            microbatches: the images and the noise.
            terms_of: returns the loss and the penalty of each network in a microbatch.

        Returns:
            The mean loss of each network, without its penalty.
        """
        num = len(microbatches)
        total: dict[str, Tensor] = {}
        with self.training_only(names):
            for index, batch in enumerate(microbatches):
                terms = terms_of(batch)
                # gradients are averaged over the ranks only in the last microbatch
                with nullcontext() if index == num - 1 else block_backward_sync(self.trainer.strategy):
                    for name, (loss, penalty) in terms.items():
                        objective = share_of_loss(loss if penalty is None else loss + penalty, num)
                        # shared scores go through the same augmentation, whose graph the next discriminator needs
                        keeps = self.share_scores and name != [*terms][-1]
                        named = backward_arguments(self.trainer.strategy, name)
                        self.manual_backward(objective, retain_graph=keeps, **named)
                        share = share_of_loss(loss.detach(), num)
                        total[name] = total[name] + share if name in total else share
            for name in names:
                self.step_network(name)
        return total

    def discriminator_terms(self, batch: Batch) -> Terms:
        """Returns the loss of each discriminator and the sum of its weighted R1 and R2, of one microbatch."""
        fake = batch.get("fake")
        if fake is None:
            with torch.no_grad():
                fake = self.with_fake(batch)["fake"]
        weights = self.penalty_weights()
        own, shared = ({}, weights) if self.share_scores else (weights, {})
        images = {"real": self.real_images(batch), "fake": self.replayed(fake.detach(), batch)}
        for kind in shared:
            if not images[kind].requires_grad:  # those of a GAN whose `real_images` trains do
                images[kind] = images[kind].detach().requires_grad_()
        seen, seen_fake = self.augmentations.apply({**batch, "image": images["real"]}, images["fake"], self.progress)
        # before the scores, so that FSDP reduces only after the gradients of the penalty exist
        penalties = self._penalties_at({"real": seen["image"], "fake": seen_fake}, own, seen)
        # a penalty of the scores differentiates their graph twice
        with uncompiled(*map(self.get_submodule, self.discriminator_names if shared else ())):
            outputs = self.discriminator_losses(seen["image"], seen_fake, seen)
        penalties |= self._penalties_of(outputs, images, shared)
        for name, output in outputs.items():
            self._observe(name, output, penalties.get(name))
        return {name: (loss_of(output), penalties.get(name)) for name, output in outputs.items()}

    def _penalties_at(
        self, images: Mapping[str, Tensor], weights: Mapping[str, float], batch: Batch
    ) -> dict[str, Tensor]:
        """Returns the weighted R1 and R2 of each discriminator at augmented images, from forwards of their own."""
        penalties: dict[str, Tensor] = {}
        for name, (kind, weight) in product(self.discriminator_names, weights.items()):
            seen = self.part_for(name, images[kind])
            condition = self.condition(batch) if kind == "real" else self.fake_condition(batch)
            penalty = r1_penalty(self.get_submodule(name), seen, *condition)
            penalties[name] = penalties.get(name, 0.0) + weight * penalty
        return penalties

    def _penalties_of(
        self, outputs: Mapping[str, Tensor | Scored], images: Mapping[str, Tensor], weights: Mapping[str, float]
    ) -> dict[str, Tensor]:
        """Returns the weighted R1 and R2 of each discriminator from its scores and the images before augmentation."""
        penalties: dict[str, Tensor] = {}
        for name, (kind, weight) in product(self.discriminator_names, weights.items()):
            scored = scores_of(outputs[name], name, "share_scores=true")
            penalty = zero_centered_penalty(images[kind], scored.real if kind == "real" else scored.fake)
            penalties[name] = penalties.get(name, 0.0) + weight * penalty
        return penalties

    def _observe(self, name: str, output: Tensor | Scored, penalty: Tensor | None) -> None:
        """Shows loss and penalties of a discriminator to the finite check, its scores to the adaptive augmentation."""
        for value in (penalty, output.penalty if isinstance(output, Scored) else None):
            if value is not None:
                self.finite.add(PENALTY, name, value)
        self.finite.add(LOSS, name, loss_of(output))
        if not self.augmentations.adapts:
            return
        scored = scores_of(output, name, "an adaptive augmentation")
        real, fake = flat_scores(scored.real), flat_scores(scored.fake)
        self.augmentations.observe(real if self.classified_as_real(name, real) is not None else real - fake)

    def generator_terms(self, batch: Batch) -> Terms:
        """Returns the loss of the generator, of one microbatch."""
        batch = batch if "fake" in batch else self.with_fake(batch)
        seen, fake = self.augmentations.apply(batch, batch["fake"], self.progress)
        loss = self.generator_loss(fake, seen)
        self.finite.add(LOSS, "generator", loss)
        return {"generator": (loss, None)}

    def penalty_weights(self) -> dict[str, float]:
        """Returns the weights of R1 ("real") and R2 ("fake") in this iteration, without those that are 0."""
        if self.progress.iterations % self.r1_every:
            return {}
        weights = {"real": self.now(self.r1_gamma), "fake": self.now(self.r2_gamma)}
        return {kind: weight * self.r1_every for kind, weight in weights.items() if weight}

    def step_network(self, network: str) -> None:
        """Steps the network's optimizer and clears its gradients.

        Within the strategy's step, Lightning unscales the gradients and calls `on_before_optimizer_step`, which clips
        them. Its wrapper of the optimizer is left out, since it would count each step in `trainer.global_step`.
        """
        optimizer = self._optimizers_by_name[network]
        with self.trainer.profiler.profile("optimizer_step"):  # type: ignore[attr-defined]  # set by a connector
            self.trainer.strategy.optimizer_step(optimizer, lambda: None)  # the gradients are already computed
        optimizer.zero_grad()

    @contextmanager
    def training_only(self, names: tuple[str, ...]) -> Iterator[None]:
        """Context in which only networks of these names are trained.

        The parameters of all other networks are frozen, so that no gradients of their weights are computed; those that
        were frozen before stay frozen at the end. Each spectral norm runs one power iteration.
        """
        others = [parameter for name, own in self._trainable.items() if name not in names for parameter in own]
        frozen = [parameter for parameter in others if parameter.requires_grad]
        for parameter in frozen:
            parameter.requires_grad_(False)
        try:
            with one_power_iteration(self._spectral_norms):
                yield
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)

    def _end_iteration(self, iteration: int) -> None:
        """Counts the iteration, and moves on all that changes over the training.

        Raises:
            FloatingPointError: the training has diverged.
        """
        count_step(self.trainer)
        self._refuse_divergence(iteration)
        self.augmentations.adapt(self.progress, self.mean_over_ranks)
        for config in self.trainer.lr_scheduler_configs:
            config.scheduler.step()  # type: ignore[call-arg]  # none is ReduceLROnPlateau
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector; 0 logs nothing
        is_written = every > 0 and iteration % every == 0
        # logging takes as long as the backward of a small network
        if is_written or iteration == self.progress.total or self._logs_every_loss:
            self._log_losses()

    def _refuse_divergence(self, iteration: int) -> None:
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, NetworkScaling):
            for network, scale in plugin.scales().items():
                self.finite.add(SCALE, network, scale)
        self.finite.end_iteration(iteration)

    def _log_losses(self) -> None:
        losses = {f"loss/{name}": loss for name, loss in self.losses.items()}
        logged = self.augmentations.log(self.progress) | losses | self.terms
        # Lightning converts what a bar shows to numbers at every look at any logged value, which waits for the device;
        # this package's bar reads the tensors
        bar = self.trainer.progress_bar_callback
        self.log_dict(logged, prog_bar=bar is not None and not isinstance(bar, GenerativeCallback))

    @property
    def rank_of(self) -> tuple[int, int]:
        """Rank of this process and number of processes."""
        return self.trainer.global_rank, self.trainer.world_size

    def now(self, number: Number) -> float:
        """Returns the value of a number, which may be a schedule, in the current iteration."""
        return value_at(number, self.progress)

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks, without synchronizing with the host."""
        mean: Tensor = self.trainer.strategy.reduce(value, reduce_op="mean")
        return mean

    # ---- optimizers

    def configure_optimizers(self) -> Any:
        # a gradient scaler must unscale before clipping, but a fused step unscales internally
        scales = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        fused = not scales and self.device.type in ("cpu", "cuda")
        settings = {"generator": self.generator_optimizer}
        settings |= dict.fromkeys(self.discriminator_names, self.discriminator_optimizer)
        if any(each.schedule.needs_total for each in settings.values()):
            self.progress = replace(self.progress, total=num_iterations(self.trainer))
        configured = []
        for name, each in settings.items():
            optimizer = each.build(_trained(self.get_submodule(name)), fused)
            optimizer.register_load_state_dict_post_hook(arrange_as_weights)
            scheduler = OptionScheduler(optimizer, each, self._progress_at)
            configured.append({"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "name": name}})
        return configured

    def _progress_at(self, iteration: int) -> Progress:
        return Progress(iteration, self.progress.images_seen, self.progress.total)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.clip_gradients_to is not None and not clips_gradients(self.trainer.strategy):
            torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), self.clip_gradients_to)

    # ---- Lightning's hooks

    def configure_callbacks(
        self,
    ) -> Sequence[Callback]:  # before Lightning checks the Trainer's arguments
        refuse_arguments(self, self.trainer)
        return []

    def setup(self, stage: str) -> None:
        refuse_trainer(self, self.trainer)
        if not self._is_built:  # by a constructor that builds outside of `building`
            self._finish_networks()
        strategy = self.trainer.strategy
        use_by_default(strategy, CheckpointFiles())
        scale_each_network(strategy)

    def on_fit_start(self) -> None:
        updates_average = any(each.updates_average for each in callbacks_of(self.trainer, GenerativeCallback))
        if self.averaged_generator is not None and not updates_average:
            rank_zero_warn("no EMA callback: the checkpoint's averaged generator would go stale and is dropped.")
            self._copies.averaged = None
        log_hyperparameters(self.trainer, self)

    def on_train_start(self) -> None:
        begin_epoch_after_resume(self.trainer)
        self._optimizers_by_name = dict(zip(self.network_names, self.trainer.optimizers, strict=True))
        self._trainable = {name: _trained(self.get_submodule(name)) for name in self.network_names}
        self._spectral_norms = [each for each in self.modules() if isinstance(each, SpectralNorm)]
        self._noise_generator = torch.Generator(device=self.device)
        self.progress = replace(self.progress, total=num_iterations(self.trainer))
        self.losses, self.terms = {}, {}
        self._logs_every_loss = reads_every_loss(self.trainer)
        self.augmentations.state = self.augmentations.state.to(self.device)
        own = (lambda weight: weight) if self._sharding is None else self._sharding.local_shard
        self.finite.start({name: [own(weight) for weight in weights] for name, weights in self._trainable.items()})
        self._refuse_divergence(self.trainer.global_step)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.losses:  # not the first batch; a look at its range waits for the device
            return
        refuse_data(batch, self.channels)
        self.refuse_batch(prepare_batch(batch, channels_last=False))
        doubt = doubt_about_range(batch)
        if doubt is not None and self.trainer.is_global_zero:
            logger.warning(doubt)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.trainer.should_stop:  # as a callback has just asked, so that Lightning logs a row for this iteration
            self._log_losses()

    def on_train_end(self) -> None:
        self.gather_generator()  # for `sample` after the fit
        self.finite.start({})

    # ---- checkpoints

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path,
        map_location: torch.device | str | dict[str, str] | Callable[..., Any] | None = None,
        *,
        strict: bool = True,
        weights_only: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Loads a module from a checkpoint, ready for `sample`.

        Args:
            checkpoint_path: path of a checkpoint, or folder of a run, which loads its best checkpoint, or the last.
            map_location: device of the module, or a function or mapping of devices, see `torch.load`; None for the CPU.
            strict, weights_only: arguments of Lightning; loading is always strict and never executes code.
            **kwargs: settings that override those of the checkpoint.

        Raises:
            RefusedInput: the file is missing or damaged, or is of another class or architecture.
        """
        remaps = callable(map_location) or isinstance(map_location, dict)
        checkpoint = read_checkpoint(checkpoint_path, map_location if remaps else "cpu")
        with of_class(checkpoint, cls):
            module = cls.from_checkpoint(checkpoint, **kwargs)
        if remaps:
            map_location = next(iter(checkpoint["state_dict"].values())).device
        return module.to(map_location or "cpu")

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], **kwargs: Any) -> Any:
        """Returns the module of a checkpoint that was read, see `load_from_checkpoint`.

        The networks that its settings describe are compared with its weights before they take memory.
        """
        if not checkpoint["state_dict"]:
            raise RefusedInput("the checkpoint holds no networks.")
        settings = {name: from_plain(value) for name, value in checkpoint["hyper_parameters"].items()} | kwargs
        checkpoint = checkpoint | {"hyper_parameters": to_plain(settings)}
        module = cls(**settings)
        module.on_load_checkpoint(checkpoint)
        module.load_state_dict(checkpoint["state_dict"])
        return module

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        mark = {
            "format_version": FORMAT_VERSION,
            "class_path": class_path(type(self)),
            "images": self.progress.images_seen,
        }
        if not is_versioned(type(self)):
            mark["code_sha256"] = digest_of_object(type(self))
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | mark
        if "loops" in checkpoint:  # of a trainer
            reopen_epoch(checkpoint)
        self.gather_generator()
        if self.averaged_generator is not None:
            state = self.averaged_generator.state_dict()
            checkpoint[EMA_KEY] = {"format_version": FORMAT_VERSION, "state_dict": state}
        if self.augmentations.adapts:
            checkpoint[FORMAT_KEY]["augmentation"] = self.mean_over_ranks(self.augmentations.state.clone()).cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other_architecture(self, checkpoint)
        trainer = attached_trainer(self)
        if trainer is not None:
            claim_states(trainer, checkpoint)
        fits = trainer is not None and trainer.state.fn == TrainerFn.FITTING
        if fits and checkpoint.get("optimizer_states"):
            refuse_other_optimizers(self, self.network_names, checkpoint)
        changed = changed_settings(self, checkpoint)
        if changed:
            rank_zero_warn(f"the checkpoint was trained with other settings: {changed}.")
        warn_if_code_changed(type(self), checkpoint)
        if EMA_KEY in checkpoint:
            self.start_average().load_state_dict(checkpoint[EMA_KEY]["state_dict"])
        ours = checkpoint.get(FORMAT_KEY, {})
        self.progress = replace(self.progress, images=ours.get("images", 0), images_per_iteration=0)
        self.augmentations.state = ours.get("augmentation", self.augmentations.new_state())

    # ---- samples

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        """Returns inputs of `decode` for `num` images: latents by default; `data` is the datamodule, if any."""
        return self.latents(num, seed)

    def sampling_share(self, rows: Int64[Tensor, " n"], num: int, seed: int, data: Any = None) -> Tensor:
        """Returns some rows of `sampling_inputs`, such as those of a rank, without reading images of other rows."""
        return self.sampling_inputs(num, seed, data)[rows]

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Batch:
        """Returns the batch for `generate`: inputs, labels and any further noise."""
        return {"latents": inputs} if labels is None else {"latents": inputs, "label": labels}

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        """Returns a batch for `generate` with the conditions of a training batch."""
        latents = self.latents(len(batch["image"]), seed).to(batch["image"])
        return self.sampling_batch(latents, batch.get("label"), seed)

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Maps generated images from [-1, 1] to [0, 1]."""
        return images.add(1).div(2).clamp(0, 1)

    def sample(
        self,
        num: int = 64,
        *,
        seed: int = 0,
        label: int | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c h w"]:
        """Generates images.

        Args:
            num: number of images.
            seed: seed of the latents; the same seed gives the same latents on any device.
            label: class of all images of a conditional generator; `None` cycles through all classes.
            weights: `ema` for the averaged generator, `raw` for the trained one; `None` uses the averaged one if it
                exists.
            batch_size: number of images generated at once.

        Returns:
            Images in [0, 1].

        Raises:
            RefusedInput: the generator is not conditioned on such a label, or no averaged weights exist.
        """
        return self.decode(
            self.sampling_inputs(num, seed),
            labels=self.labels(num, label),
            weights=weights,
            batch_size=batch_size,
            seed=seed,
        )

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Float[Tensor, "n c h w"]:
        """Generates the images in [0, 1] that `decode` generates, with their graph: `gan(z)`.

        The averaged generator is used if it exists. A training step calls the networks instead.

        Args:
            inputs: latents (n, z); of a GAN that translates images, images in [0, 1].
            labels: class of each image of a conditional generator; `None` cycles through all classes.

        Raises:
            RefusedInput: the generator takes other inputs.
        """
        self.refuse_inputs(inputs, labels)
        labels = self.labels(len(inputs)) if labels is None else labels
        own = None if labels is None else labels.to(self.device)
        return self._images([self.sampling_batch(self.to_generator(inputs), own, mix(0, 0))])

    def predict_step(self, data: Any, batch_idx: int, dataloader_idx: int = 0) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from a batch of `Trainer.predict`: latents (n, z), or pairs (latents, labels)."""
        inputs, *labels = data if isinstance(data, list | tuple) else [data]
        images: Tensor = self(inputs, *labels[:1])
        return images

    def refuse_inputs(self, inputs: Any, labels: Tensor | None) -> None:
        """Raises `RefusedInput` for inputs of `forward` that are no latents, and for labels of a generator
        without classes.
        """
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        if not isinstance(inputs, Tensor) or shape[1:] != (self.latent_dim,) or not inputs.is_floating_point():
            raise RefusedInput(
                f"{type(self).__name__} generates images from latents, floats of shape (n, {self.latent_dim}), and got"
                f" {shape}: use latents(n), or torch.randn(n, {self.latent_dim})."
            )
        if labels is not None and not self.num_classes:
            raise RefusedInput("labels: the model was trained without classes; leave them out.")

    def decode(
        self,
        inputs: Float[Tensor, "n *shape"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from latents or other generator inputs, in evaluation mode and float32.

        Args:
            inputs: latents (n, z).
            labels: class of each image of a conditional generator; `None` cycles through all classes.
            weights: see `sample`.
            batch_size: number of images generated at once.
            seed: seed of further noise, such as dropout.
        """
        labels = self.labels(len(inputs)) if labels is None else labels

        def batches() -> Iterator[Batch]:
            for start in range(0, len(inputs), batch_size):
                rows = slice(start, start + batch_size)
                own = None if labels is None else labels[rows].to(self.device)
                yield self.sampling_batch(self.to_generator(inputs[rows]), own, mix(seed, start // batch_size))

        return self.decode_batches(batches(), weights)

    @torch.no_grad()
    def decode_batches(self, batches: Iterable[Batch], weights: Weights | None = None) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from batches for `generate`, in evaluation mode and float32; see `decode`."""
        return self._images(batches, weights)

    def _images(self, batches: Iterable[Batch], weights: Weights | None = None) -> Tensor:
        network = self.sampling_generator(weights)
        with evaluating(network), torch.autocast(self.device.type, enabled=False):
            images = [self.generate(network, batch) for batch in batches]
        return self.to_unit_range(torch.cat(images).float())

    def to_generator(self, inputs: Tensor) -> Tensor:
        """Moves inputs to the generator's device, in its precision, which is float64 with precision=64-true."""
        return inputs.to(self.device, next(self.generator.parameters()).dtype)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Returns `num` latents on the CPU that depend only on `seed`."""
        generator = torch.Generator().manual_seed(mix(seed, "samples"))
        return torch.randn(num, self.latent_dim, generator=generator)

    def labels(self, num: int, label: int | None = None) -> Int64[Tensor, " n"] | None:
        """Returns the classes of `num` samples: `label`, or all classes in turn; None for a generator without classes.

        Raises:
            RefusedInput: the generator is not conditioned on such a label.
        """
        if label is None:
            return torch.arange(num) % self.num_classes if self.num_classes else None
        if not self.num_classes:
            raise RefusedInput(f"label={label}: the model was trained without classes; leave it out.")
        if not 0 <= label < self.num_classes:
            raise RefusedInput(f"label={label}: the model knows the classes 0 to {self.num_classes - 1}.")
        return torch.full((num,), label)

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Float[Tensor, "n c h w"], int]:
        """Returns samples and the number of grid columns.

        A conditional model has one column for each class, and `num` is rounded down to full rows.
        """
        columns = math.ceil(math.sqrt(num))
        if 0 < self.num_classes <= num:
            columns, num = self.num_classes, num - num % self.num_classes
        return self.decode(self.sampling_inputs(num, seed, data), seed=seed), columns

    # ---- copies of the generator

    @property
    def averaged_generator(self) -> nn.Module | None:
        """Generator with averaged weights, or `None` if there is no average."""
        return self._copies.averaged

    def sampling_generator(self, weights: Weights | None = None) -> nn.Module:
        """Returns the generator that samples and metrics use; for `weights` see `sample`.

        Raises:
            RefusedInput: averaged weights are requested but do not exist.
        """
        if weights == "raw" or (weights is None and self._copies.averaged is None):
            return self.generator if self._copies.full is None else self._copies.full
        if self._copies.averaged is None:
            raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
        return self._copies.averaged.to(self.device)

    def start_average(self) -> nn.Module:
        """Creates and returns the averaged generator, a frozen copy of the generator in evaluation mode."""
        self._copies.averaged = self._full_generator()
        return self._copies.averaged

    def gather_generator(self) -> None:
        """Gathers the weights for sampling if a strategy shards the networks; every rank must call it.

        Every save, sample and measurement begins with it, so that none is made of a training that has diverged.
        """
        self.finite.raise_if_diverged()
        if self._sharding is None:
            return
        for callback in callbacks_of(self.trainer, GenerativeCallback):
            callback.gather_average(self)
        self._copies.full = self._full_generator()

    def _full_generator(self) -> nn.Module:
        """Returns a frozen copy of the generator in evaluation mode; every rank must call it if it is sharded."""
        if self._sharding is None:
            return deepcopy(self.generator).eval().requires_grad_(False)
        generator = self.rebuilt().generator
        generator.load_state_dict(self._sharding.full_state_dict(self.generator))
        return generator.to(self.device).eval().requires_grad_(False)

    @property
    def _sharding(self) -> NetworkStrategy | None:
        """Strategy that shards the networks over the ranks, if any."""
        trainer = attached_trainer(self)
        return None if trainer is None else sharding(trainer.strategy)


def _trained(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
