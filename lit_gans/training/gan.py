"""What a GAN is: its networks and losses, and everything that it may override, in the order in which an iteration runs
it (`step.py`).

A GAN needs the first three: a `generator`, its discriminators, and their losses, see `lit_gans/models/dcgan.py`.
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
    """Networks and losses of a GAN, with defaults for everything that has one.

    Shapes: n images of a microbatch, c channels, h height and w width, z numbers of a latent. Images are in [-1, 1].

    Attributes:
        generator: network that generates images.
        discriminator: the discriminator; with other `discriminator_names`, one attribute for each name.
        discriminator_names: names of the discriminators; each is stepped by an optimizer of its own.
        reuses_fake: whether the generator's step reuses the generated images of the last discriminator step.
        generator_first: whether the generator steps before the discriminators, on the same generated images.
        num_classes: number of classes that the generator is conditioned on.
        trains_against: names of the feature extractors that a loss uses; metrics must not use them, too.
        instead_of_trainer: for each argument of Lightning's Trainer that a GAN does not support, what to set instead.
        progress: number of iterations and images at the start of the current iteration.
        terms: further values to log, of the last microbatch; losses may add values.
        backend: what runs the backward passes and optimizer steps.
    """

    generator: nn.Module
    discriminator: nn.Module
    discriminator_names: ClassVar[tuple[str, ...]] = ("discriminator",)
    reuses_fake: ClassVar[bool] = False
    generator_first: ClassVar[bool] = False
    num_classes: int = 0
    trains_against: tuple[str, ...] = ()
    instead_of_trainer: ClassVar[Mapping[str, str]] = INSTEAD_OF_TRAINER

    # arguments of `AdversarialModule`
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
    seed: int
    augmentations: Augmentations

    progress: Progress
    terms: dict[str, Tensor]
    finite: FiniteCheck
    backend: Backend

    # ---- the batch of a step

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if the networks cannot train on the first batch of a loader; passes by default."""

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random tensors of one step, each with `num` rows, which are added to the batch.

        By default, these are `latents` (n, z).
        """
        return {"latents": noise.normal("latents", num, self.latent_dim)}

    def augment(self, batch: Batch) -> Batch:
        """Returns a batch with the noise of `sample_noise` applied to its images; unchanged by default."""
        return batch

    def with_fake(self, batch: Batch) -> Batch:
        """Returns a training batch with the generated images, `fake` (n, c, h, w), with their graph to the generator.

        The images of both steps come from here, by default from `generate`. A GAN whose training images differ from its
        samples overrides this method. It may add further tensors of the forward pass, with one row for each image.
        """
        return {**batch, "fake": self.generate(self.generator, batch)}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        """Generates images (n, c, h, w) from a batch with `generator`, the trained or the averaged one."""
        images: Tensor = generator(batch["latents"], *self.fake_condition(batch))
        return images

    def condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that the networks are conditioned on, for example labels (n,); none by default."""
        return ()

    def fake_condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the tensors that generated images are conditioned on; by default those of the real images."""
        return self.condition(batch)

    # ---- the discriminators' step

    @property
    def trains_discriminators(self) -> bool:
        """Whether this iteration trains the discriminators; always by default."""
        return True

    def discriminator_batch(self, batch: Batch) -> Batch:
        """Returns the batch that the discriminators train on, whose generated images have no graph to the generator.

        Unchanged by default. A GAN may replace generated images by earlier ones, or compute the real images.
        """
        return batch

    @property
    def discriminator_inputs(self) -> Mapping[str, Mapping[Kind, str]]:
        """Names, in a batch, of the real and of the generated images that each discriminator receives."""
        return {name: {"real": "image", "fake": "fake"} for name in self.discriminator_names}

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        """Names of the networks whose gradient is differentiated twice."""
        return () if is_zero(self.r1_gamma) and is_zero(self.r2_gamma) else self.discriminator_names

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> Mapping[str, Tensor | Scored]:
        """Returns the loss of each discriminator with its scores.

        A scalar without scores is enough where nothing reads the scores.

        Args:
            real: real images (n, c, h, w), `batch["image"]`.
            fake: generated images (n, c, h, w), `batch["fake"]`, without a graph to the generator.
            batch: all tensors of the microbatch; images are augmented.
        """
        raise NotImplementedError

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor | None:
        """Returns which scores of a discriminator classify an image as real; `None` if its scores have no threshold.

        Args:
            name: name of the discriminator.
            scores: all scores that it returned, as a vector.
        """
        return scores > 0

    # ---- the generator's step

    def generator_batch(self, batch: Batch) -> Batch:
        """Returns the batch that the generator trains on, before its images are generated; unchanged by default."""
        return batch

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """Returns the generator's scalar loss; the discriminators are frozen.

        Args:
            fake: generated images (n, c, h, w), `batch["fake"]`, with their graph to the generator.
            batch: all tensors of the microbatch; images, such as the real ones, `batch["image"]`, are augmented.
        """
        raise NotImplementedError

    # ---- outside of an iteration

    def dummy_batch(self, num: int) -> Batch:
        """Returns a batch without images and noise, with the shapes that the generator expects."""
        return {"latents": torch.empty(num, self.latent_dim), "label": torch.zeros(num, dtype=torch.long)}

    # ---- what the losses may use

    def now(self, number: Number) -> float:
        """Returns the value of a number, which may be a schedule, in the current iteration."""
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
        """Number of batches, of the data's batch size, that the loader yields per step."""
        return self.n_critic * self.accumulate_gradients
