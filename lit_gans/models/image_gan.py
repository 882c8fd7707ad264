"""Base class of GANs that generate images from latents, with a choice of networks and class conditioning."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import Noise
from lit_gans.networks import NetworkName, build_discriminator, build_generator, refuse_options
from lit_gans.networks.blocks import Block
from lit_gans.training.batch import Batch, refuse_label_layout, refuse_labels, refuse_layout
from lit_gans.training.module import AdversarialModule


class ImageGAN(AdversarialModule):
    """Maps latents to images with one of the built-in pairs of networks. Subclasses only define the losses.

    The `mlp` networks also support points in the plane, which are images with 2 channels and 1 pixel.

    Args:
        network: architecture of the generator and the discriminators. `dcgan`, `resnet`, `r3gan` and `fastgan` support
            square and rectangular images of at least 16 pixels. The shorter side must be 4, 5, 6 or 7 times a power of
            two, and the longer side must be a multiple of that power. `mlp` supports any size. `fastgan` uses the
            discriminator of `dcgan`.
        generator_width: number of channels of the generator's highest-resolution feature map, or units per layer for
            mlp. null uses the network's default: 128 for dcgan and mlp, 256 for resnet (64 above 32 pixels), 768 for
            r3gan at 32 pixels, 256 for fastgan at 32 and 64 pixels.
        discriminator_width: number of channels of the discriminators' highest-resolution feature map, or units per
            layer for mlp. null uses the network's default: 64 for dcgan and fastgan, 128 for mlp, 128 for resnet (64
            above 32 pixels), 768 for r3gan at 32 pixels.
        bias: whether convolutions before a batch norm have biases, which the batch norm cancels (dcgan).
        dense_stem: whether to add a linear layer between the latent and the generator's first convolution (dcgan).
        block: type of the convolutions inside the networks: `plain`, or the cheaper `grouped`, `separable` and
            `inverted_residual` (dcgan and resnet).
        num_classes: number of classes that condition the generator and the discriminators, using the labels of the
            data. The generator has an embedding (dcgan, mlp, r3gan) or conditional batch norm (resnet), and the
            discriminators have a projection. 0 trains an unconditional model.
        **kwargs: see `AdversarialModule`.
    """

    def __init__(
        self,
        *,
        network: NetworkName = "dcgan",
        generator_width: int | None = None,
        discriminator_width: int | None = None,
        bias: bool = False,
        dense_stem: bool = False,
        block: Block = "plain",
        num_classes: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        refuse_below(1, generator_width=generator_width, discriminator_width=discriminator_width)
        refuse_options(network, self.image_size, bias=bias, dense_stem=dense_stem, block=block)
        self.network, self.block, self.num_classes = network, block, num_classes
        self.generator_width, self.discriminator_width = generator_width, discriminator_width
        self.bias, self.dense_stem = bias, dense_stem
        with self.building():
            self.build_networks()

    def build_networks(self) -> None:
        """Builds the generator and the discriminators. The constructor calls this method.

        If a subclass needs its own options here, it must set them before it calls `super().__init__()`.
        """
        discriminators = {name: self.build_discriminator() for name in self.discriminator_names}
        self.generator = self.build_generator()
        for name, discriminator in discriminators.items():
            self.add_module(name, discriminator)

    def build_generator(self, **options: Any) -> nn.Module:
        """Returns a new generator of the selected network; `options` are additional arguments of the network."""
        return build_generator(
            self.network,
            latent_dim=self.latent_dim,
            channels=self.channels,
            image_size=self.image_size,
            width=self.generator_width,
            bias=self.bias,
            dense_stem=self.dense_stem,
            block=self.block,
            num_classes=self.num_classes,
            **options,
        )

    def build_discriminator(self, **options: Any) -> nn.Module:
        """Returns a new discriminator of the selected network; `options` are additional arguments, such as `norm`."""
        return build_discriminator(
            self.network,
            channels=self.channels,
            image_size=self.image_size,
            width=self.discriminator_width,
            bias=self.bias,
            block=self.block,
            num_classes=self.num_classes,
            **options,
        )

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if the images have an unexpected shape, or if labels are missing or no classes."""
        refuse_layout(batch["image"], self.image_shape)
        if not self.num_classes:
            return
        if "label" not in batch:
            raise RefusedInput(
                f"the model has num_classes={self.num_classes}, but the loader yields no labels: it must yield pairs"
                " (image, label), or dicts with image and label."
            )
        for labels in self.condition(batch):
            refuse_labels(labels, len(batch["image"]), self.num_classes)

    def condition(self, batch: Batch) -> tuple[Tensor, ...]:
        if not self.num_classes:
            return ()
        refuse_label_layout(batch["label"])  # `refuse_batch` checks the first batch only
        return (batch["label"],)

    def fake_condition(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the labels of generated images: `fake_label` if the GAN samples it, otherwise the data's labels."""
        return (batch["fake_label"],) if "fake_label" in batch else self.condition(batch)

    def uniform_labels(self, noise: Noise, num: int) -> Tensor:
        """Samples `num` class labels uniformly."""
        return (noise.uniform("labels", num) * self.num_classes).long()

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Maps images from [-1, 1] to [0, 1]; returns points unchanged."""
        return images if self.image_size == 1 else super().to_unit_range(images)
