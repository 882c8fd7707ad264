"""One iteration of adversarial training, from a loader's batch to the losses, without Lightning.

`TrainingStep` is the only training loop. Its `Backend` runs the backward passes and optimizer steps. `backend.py`
implements the backend in plain PyTorch. `trainer_backend.py` implements it with Lightning's Trainer and any strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.common.compilation import uncompiled
from lit_gans.common.errors import RefusedInput
from lit_gans.common.modes import frozen
from lit_gans.common.noise import Noise, mix, seed_dropout
from lit_gans.common.precision import tf32
from lit_gans.networks.spectral import one_power_iteration, spectral_layers
from lit_gans.training.backend import Backend
from lit_gans.training.batch import Batch, prepare_batch, repeat_batch, share_of_loss, split_batch
from lit_gans.training.finite import LOSS, PENALTY, SCALE
from lit_gans.training.gan import GANDefinition, Kind
from lit_gans.training.losses import Scored, flat_scores, loss_of, scores_of
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty

Terms = dict[str, tuple[Tensor, Tensor | None]]  # loss and penalty of each network


class TrainingStep:
    """Trains the networks of a GAN, one iteration per call.

    Args:
        gan: the networks and losses.
        backend: runs the backward passes and optimizer steps. The losses of the GAN use the same backend.
    """

    def __init__(self, gan: GANDefinition, backend: Backend) -> None:
        self.gan, self.backend = gan, backend
        gan.backend = backend
        self._trainable = {name: trainable(gan.get_submodule(name)) for name in gan.network_names}
        self._spectral = {name: spectral_layers(gan.get_submodule(name)) for name in gan.network_names}
        self._random_numbers = torch.Generator(device=gan.device)
        weights = {name: [*map(backend.local_shard, weights)] for name, weights in self._trainable.items()}
        gan.finite.start(weights)

    def __call__(self, data: Any, iteration: int) -> dict[str, Tensor]:
        """Runs one iteration: `n_critic` steps of the discriminators and one step of the generator.

        Args:
            data: output of a loader with the images of all steps, see `prepare_batch`.
            iteration: number of previous iterations.

        Returns:
            The mean loss of each network over the microbatches of its last step, without its penalty.

        Raises:
            FloatingPointError: if a loss, a penalty or a weight is not finite.
        """
        with tf32(self.gan.tf32 or torch.is_autocast_enabled(self.gan.device.type)):
            return self._iterate(data, iteration)

    def _iterate(self, data: Any, iteration: int) -> dict[str, Tensor]:
        gan, backend = self.gan, self.backend
        seed_dropout(gan.device, mix(gan.seed, iteration, backend.rank))  # gives the same dropout after a resume
        batch = prepare_batch(data, gan.channels_last)
        gan.progress = gan.progress.next(iteration, len(batch["image"]) * backend.world_size)
        reuses_latents = gan.reuses_fake and gan.generator_batch_multiple == 1
        shares_forward = reuses_latents and gan.accumulate_gradients == 1  # both steps share one forward pass
        losses: dict[str, Tensor] = {}

        real = split_batch(batch, gan.n_critic)
        for critic_step, images in enumerate(real):
            microbatches = self._microbatches(images, ("discriminator", iteration, critic_step))
            last = critic_step == gan.n_critic - 1
            if shares_forward and last:
                microbatches[0] = gan.with_fake(microbatches[0])
            discriminator_inputs = microbatches
            if gan.generator_first and last:
                with self._one_power_iteration(generates=True):
                    discriminator_inputs = [self._with_detached_fake(batch) for batch in microbatches]
                losses |= self._step(("generator",), microbatches, self.generator_terms)
            if gan.trains_discriminators:
                losses |= self._step(gan.discriminator_names, discriminator_inputs, self.discriminator_terms)

        if not gan.generator_first:
            if reuses_latents:  # the generator trains on the microbatches of the last discriminator step
                microbatches = self._with_new_augmentation_noise(microbatches, ("generator", iteration))
            else:
                images = repeat_batch(real[-1], gan.generator_batch_multiple)
                microbatches = self._microbatches(images, ("generator", iteration))
            losses |= self._step(("generator",), microbatches, self.generator_terms)

        backend.count_iteration()
        self.refuse_divergence(iteration + 1)
        gan.augmentations.adapt(gan.progress, gan.mean_over_ranks)
        backend.step_schedules()
        return losses

    # ---- the batch of a step

    def _microbatches(self, batch: Batch, key: tuple[int | str, ...]) -> list[Batch]:
        """Adds the noise of one step to this rank's images, and splits them into microbatches."""
        noise = self._noise(key)
        num = len(batch["image"])
        batch = self.gan.augment({**batch, **self.gan.sample_noise(noise, num)})
        return split_batch({**batch, **self.gan.augmentations.noise(noise, num)}, self.gan.accumulate_gradients)

    def _noise(self, key: tuple[int | str, ...]) -> Noise:
        ranks = self.backend.rank, self.backend.world_size
        return Noise(self._random_numbers, (self.gan.seed, *key), *ranks, self.gan.accumulate_gradients)

    def _with_new_augmentation_noise(self, microbatches: list[Batch], key: tuple[int | str, ...]) -> list[Batch]:
        """Returns the microbatches of a previous step with new random numbers for their augmentations."""
        num = sum(len(batch["image"]) for batch in microbatches)
        drawn = self.gan.augmentations.noise(self._noise(key), num)
        parts = {name: tensor.chunk(len(microbatches)) for name, tensor in drawn.items()}
        return [{**batch, **{name: part[i] for name, part in parts.items()}} for i, batch in enumerate(microbatches)]

    def _with_detached_fake(self, batch: Batch) -> Batch:
        """Returns a batch whose generated images have no graph.

        If the batch has no generated images, this method generates them with the current weights.
        """
        if "fake" not in batch:
            with torch.no_grad():
                batch = self.gan.with_fake(batch)
        names = {inputs["fake"] for inputs in self.gan.discriminator_inputs.values()}
        return batch | {name: batch[name].detach() for name in names}

    # ---- a step of some networks

    def _step(
        self, names: tuple[str, ...], microbatches: list[Batch], terms_of: Callable[[Batch], Terms]
    ) -> dict[str, Tensor]:
        """Runs one optimizer step of each named network on its mean gradient over microbatches.

        All other networks are frozen during the step.

        Args:
            names: names of the networks to step.
            microbatches: the images and the noise.
            terms_of: function that returns the loss and the penalty of each network for a microbatch.

        Returns:
            The mean loss of each network, without its penalty.
        """
        num = len(microbatches)
        total: dict[str, Tensor] = {}
        generates = "fake" not in microbatches[0]
        others = [parameter for name, weights in self._trainable.items() if name not in names for parameter in weights]
        with frozen(others), self._one_power_iteration(generates):
            for index, batch in enumerate(microbatches):
                terms = terms_of(batch)
                # gradients are averaged over the ranks only in the last microbatch
                with nullcontext() if index == num - 1 else self.backend.without_averaging():
                    for name, (loss, penalty) in terms.items():
                        objective = share_of_loss(loss if penalty is None else loss + penalty, num)
                        # With shared scores, the losses of all discriminators share the graph of the augmentation. Only
                        # the last backward pass is allowed to free this graph.
                        retain_graph = self.gan.share_scores and name != [*terms][-1]
                        self.backend.backward(name, objective, retain_graph=retain_graph)
                        share = share_of_loss(loss.detach(), num)
                        total[name] = total[name] + share if name in total else share
            for name in names:
                self.backend.step(name)
        return total

    def _one_power_iteration(self, generates: bool) -> AbstractContextManager[None]:
        """Context manager in which each spectral norm runs one power iteration.

        Args:
            generates: whether the generator runs a forward pass.
        """
        used = [name for name in self._spectral if generates or name != "generator"]
        return one_power_iteration(
            [layer for layers in self._spectral.values() for layer in layers],
            [layer for name in used for layer in self._spectral[name]],
        )

    # ---- the discriminators' losses and penalties

    def discriminator_terms(self, batch: Batch) -> Terms:
        """Returns the loss and the sum of the weighted R1 and R2 of each discriminator for one microbatch."""
        gan = self.gan
        batch = gan.discriminator_batch(self._with_detached_fake(batch))
        weights = self.penalty_weights()
        separate, shared = ({}, weights) if gan.share_scores else (weights, {})
        for name in {inputs[kind] for inputs in gan.discriminator_inputs.values() for kind in shared}:
            if not batch[name].requires_grad:  # a GAN can compute the real images with a network
                batch = batch | {name: batch[name].detach().requires_grad_()}
        augmented = gan.augmentations.apply(batch, gan.progress)
        # FSDP must reduce gradients only after the penalties' gradients exist, so separate penalties come first
        penalties = self._penalties(separate, partial(self._separate_penalty, augmented))
        # a shared penalty differentiates the graph of the scores twice
        with uncompiled(*map(gan.get_submodule, gan.discriminator_names if shared else ())):
            outputs = gan.discriminator_losses(augmented["image"], augmented["fake"], augmented)
        if outputs.keys() != set(gan.discriminator_names):
            raise RefusedInput(
                f"{type(gan).__name__}.discriminator_losses returns losses of {', '.join(outputs) or 'nothing'}, but"
                f" its discriminator_names are {', '.join(gan.discriminator_names)}: use these names as keys."
            )
        penalties |= self._penalties(shared, partial(self._shared_penalty, outputs, batch))
        for name, output in outputs.items():
            self._observe(name, output, penalties.get(name))
        return {name: (loss_of(output), penalties.get(name)) for name, output in outputs.items()}

    def penalty_weights(self) -> dict[Kind, float]:
        """Returns the nonzero weights of R1 ("real") and R2 ("fake") in this iteration."""
        gan = self.gan
        if not gan.progress.is_due(gan.r1_every):
            return {}
        weights: dict[Kind, float] = {"real": gan.now(gan.r1_gamma), "fake": gan.now(gan.r2_gamma)}
        return {kind: weight * gan.r1_every for kind, weight in weights.items() if weight}

    def _penalties(self, weights: Mapping[Kind, float], penalty_of: Callable[[str, Kind], Tensor]) -> dict[str, Tensor]:
        """Returns the sum of the weighted R1 and R2 of each discriminator.

        Args:
            weights: weights of R1 ("real") and R2 ("fake").
            penalty_of: function that returns R1 or R2 of a discriminator, given its name.
        """
        penalties: dict[str, Tensor] = {}
        for name in self.gan.discriminator_inputs:
            for kind, weight in weights.items():
                penalties[name] = penalties.get(name, 0.0) + weight * penalty_of(name, kind)
        return penalties

    def _separate_penalty(self, batch: Batch, name: str, kind: Kind) -> Tensor:
        """Returns R1 or R2 of a discriminator at augmented images, using a separate forward pass."""
        condition = self.gan.condition(batch) if kind == "real" else self.gan.fake_condition(batch)
        images = batch[self.gan.discriminator_inputs[name][kind]]
        return r1_penalty(self.gan.get_submodule(name), images, *condition)

    def _shared_penalty(self, outputs: Mapping[str, Tensor | Scored], batch: Batch, name: str, kind: Kind) -> Tensor:
        """Returns R1 or R2 of a discriminator at images before augmentation, using the scores of its loss."""
        scored = scores_of(outputs[name], name, "share_scores=true")
        images = batch[self.gan.discriminator_inputs[name][kind]]
        return zero_centered_penalty(images, scored.real if kind == "real" else scored.fake)

    def _observe(self, name: str, output: Tensor | Scored, penalty: Tensor | None) -> None:
        """Passes the discriminator's loss and penalties to the finite check, and its scores to the adaptive
        augmentation.
        """
        gan = self.gan
        for value in (penalty, output.penalty if isinstance(output, Scored) else None):
            if value is not None:
                gan.finite.add(PENALTY, name, value)
        gan.finite.add(LOSS, name, loss_of(output))
        if not gan.augmentations.adapts:
            return
        scored = scores_of(output, name, "an adaptive augmentation")
        real, fake = flat_scores(scored.real), flat_scores(scored.fake)
        is_real = gan.classified_as_real(name, real)
        gan.augmentations.observe(real > fake if is_real is None else is_real)

    # ---- the generator's loss

    def generator_terms(self, batch: Batch) -> Terms:
        """Returns the loss of the generator for one microbatch."""
        batch = self.gan.generator_batch(batch)
        batch = batch if "fake" in batch else self.gan.with_fake(batch)
        augmented = self.gan.augmentations.apply(batch, self.gan.progress)
        loss = self.gan.generator_loss(augmented["fake"], augmented)
        self.gan.finite.add(LOSS, "generator", loss)
        return {"generator": (loss, None)}

    # ---- the end of an iteration

    def refuse_divergence(self, iteration: int) -> None:
        """Raises `FloatingPointError` if the training has diverged.

        Args:
            iteration: number of finished iterations.
        """
        for network, scale in self.backend.loss_scales().items():
            self.gan.finite.add(SCALE, network, scale)
        self.gan.finite.end_iteration(iteration)


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters of a network that require gradients."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
