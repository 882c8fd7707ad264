"""Base class that defines a GAN: its networks, its losses, and the methods that a subclass can override.

Subclass `AdversarialModule` or `ImageGAN`, which add the constructor. A subclass must define a generator, at least one
discriminator, and the losses of both. `lit_gans/models/dcgan.py` is a short example. The methods below are grouped by
the step that calls them; `step.py` has the exact order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from lit_gans.common.noise import Noise
from lit_gans.common.size import Size, sides
from lit_gans.training.augmentation import Augmentations
from lit_gans.training.backend import Backend
from lit_gans.training.batch import Batch
from lit_gans.training.finite import FiniteCheck
from lit_gans.training.losses import Scored
from lit_gans.training.refusals import INSTEAD_OF_TRAINER
from lit_gans.training.schedules import Number, Progress, is_zero, value_at

Kind = Literal["real", "fake"]


class GANDefinition(LightningModule):
    """Networks and losses of a GAN, with defaults for all optional methods.

    Shapes: c is the number of channels, h and w are height and width, z is the length of a latent. In `sample_noise`
    and `augment`, n is the number of images of a step. In all other methods, n is the number of images of a microbatch.
    Images are in [-1, 1].

    Attributes:
        generator: network that generates images.
        discriminator: the discriminator. A GAN with several discriminators has one attribute for each name in
            `discriminator_names` instead.
        discriminator_names: names of the discriminators. Each discriminator has its own optimizer.
        reuses_fake: whether the generator's step reuses the latents of the last discriminator step. With a single
            microbatch, it also reuses the generated images.
        generator_first: whether the generator steps before the last discriminator step of an iteration, with the same
            latents.
        num_classes: number of classes that the generator is conditioned on.
        class_names: names of the classes in the training data, if they have names.
        trains_against: names of the feature extractors that a loss uses. Metrics must not use the same extractors.
        instead_of_trainer: maps each unsupported argument of Lightning's Trainer to advice on what to set instead.
        progress: number of iterations and images at the start of the current iteration.
        terms: additional values to log, computed on the last microbatch. Losses can add values.
        backend: runs the backward passes and optimizer steps.
    """

    generator: nn.Module
    discriminator: nn.Module
    discriminator_names: ClassVar[tuple[str, ...]] = ("discriminator",)
    reuses_fake: ClassVar[bool] = False
    generator_first: ClassVar[bool] = False
    num_classes: int = 0
    class_names: tuple[str, ...] = ()
    trains_against: tuple[str, ...] = ()
    instead_of_trainer: ClassVar[Mapping[str, str]] = INSTEAD_OF_TRAINER

    # set by the constructor of `AdversarialModule`
    image_size: Size
    channels: int
    latent_dim: int
    n_critic: int
    generator_batch_multiple: int
    accumulate_gradients: int
    r1_gamma: Number
    r2_gamma: Number
    r1_every: int
    share_scores: bool
    channels_last: bool
    tf32: bool
    seed: int
    clip_gradients_to: float | None
    augmentations: Augmentations

    progress: Progress
    terms: dict[str, Tensor]
    finite: FiniteCheck
    backend: Backend

    def begin_training(self) -> None:
        """Called at the start of a training, for example to load frozen networks; does nothing by default."""

    # ---- the batch of a step

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if the networks cannot train on the loader's first batch; never raises by default."""

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random tensors of one step, which are added to the batch. Each tensor has `num` rows.

        By default, returns only `latents` (n, z).
        """
        return {"latents": noise.normal("latents", num, self.latent_dim)}

    def augment(self, batch: Batch) -> Batch:
        """Transforms the real images with numbers from `sample_noise`, for example random crops.

        By default, returns the batch unchanged. This method is independent of `augmentations`, which the training step
        applies.
        """
        return batch

    def with_fake(self, batch: Batch) -> Batch:
        """Adds generated images to a training batch, as `fake` (n, c, h, w), with their graph to the generator.

        In a discriminator step, the generator usually runs without gradients.

        This method generates the images for both steps. By default, it calls `generate`. Override it if images are
        generated differently for training than for sampling. It can add other tensors of the forward pass to the
        batch, with one row for each image.
        """
        return {**batch, "fake": self.generate(self.generator, batch)}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Generates images (n, c, h, w) from a batch with `generator`, either the trained or the averaged generator."""
        images: Tensor = generator(batch["latents"], *self.fake_condition(batch))
        return images

    def condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that condition the networks, for example labels (n,); by default, returns none."""
        return ()

    def fake_condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that condition the generated images; by default, the conditions of the real images."""
        return self.condition(batch)

    # ---- the discriminators' step

    @property
    def trains_discriminators(self) -> bool:
        """Whether this iteration trains the discriminators; True by default."""
        return True

    def discriminator_batch(self, batch: Batch) -> Batch:
        """Returns the batch that the discriminators train on; by default, returns the batch unchanged.

        The generated images have no graph to the generator. A subclass can replace generated images by images from
        earlier iterations, or compute the real images.
        """
        return batch

    @property
    def discriminator_inputs(self) -> Mapping[str, Mapping[Kind, str]]:
        """Batch keys of the real images and of the generated images that each discriminator receives."""
        return {name: {"real": "image", "fake": "fake"} for name in self.discriminator_names}

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        """Names of the networks that a gradient penalty differentiates twice."""
        return () if is_zero(self.r1_gamma) and is_zero(self.r2_gamma) else self.discriminator_names

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> Mapping[str, Tensor | Scored]:
        """Returns the loss of each discriminator together with its scores.

        A scalar loss without scores is enough if no setting needs the scores.

        Args:
            real: real images (n, c, h, w), `batch["image"]`.
            fake: generated images (n, c, h, w), `batch["fake"]`, without a graph to the generator.
            batch: all tensors of the microbatch. Its images are augmented.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define discriminator_losses(real, fake, batch)")

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor | None:
        """Returns a mask of the scores that classify an image as real, or `None` if the scores have no threshold.

        Only the adaptive augmentation and the callback `Watch` use this mask.

        Args:
            name: name of the discriminator.
            scores: all scores that the discriminator returned, as a vector.
        """
        return scores > 0

    # ---- the generator's step

    def generator_batch(self, batch: Batch) -> Batch:
        """Returns the batch from which the generator generates its training images; unchanged by default.

        This method has no effect on generated images that the batch already contains, see `reuses_fake`.
        """
        return batch

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generator's scalar loss. The discriminators are frozen while the loss is computed.

        Args:
            fake: generated images (n, c, h, w), `batch["fake"]`, with their graph to the generator.
            batch: all tensors of the microbatch. Its images are augmented, including the real images `batch["image"]`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define generator_loss(fake, batch)")

    # ---- outside of an iteration

    def dummy_batch(self, num: int) -> Batch:
        """Returns a batch of `num` rows with placeholder values, in the shapes that the generator expects."""
        return {"latents": torch.empty(num, self.latent_dim), "label": torch.zeros(num, dtype=torch.long)}

    # ---- helpers for the losses

    def now(self, number: Number) -> float:
        """Returns the value of a number or schedule in the current iteration."""
        return value_at(number, self.progress)

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks, without synchronizing with the host."""
        return self.backend.mean_over_ranks(value)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Names of the generator and the discriminators."""
        return ("generator", *self.discriminator_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        return self.channels, *sides(self.image_size)

    @property
    def batches_per_step(self) -> int:
        """Number of batches of the data's batch size that the loader yields for one training step."""
        return self.n_critic * self.accumulate_gradients
