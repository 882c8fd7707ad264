"""Base class of image-to-image translation GANs: their data, their jitter augmentation and their samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.size import Size, sides
from lit_gans.data.contracts import PairedSource, UnpairedSource
from lit_gans.data.images import to_networks
from lit_gans.networks.blocks import Norm
from lit_gans.training.batch import Batch, doubt_about_range, named, prepare_batch, refuse_data, refuse_layout
from lit_gans.training.module import AdversarialModule
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.sampling import Weights
from lit_gans.training.schedules import ConstantThenLinearSchedule

logger = logging.getLogger(__name__)

Direction = Literal["a_to_b", "b_to_a"]
_ENLARGED = 286 / 256  # images are enlarged by this factor and cropped back (Isola et al. 2017, section 6.2)


class Translator(AdversarialModule):
    """Translates `input`, images of a domain A, to `image`, images of a domain B.

    The defaults follow the PyTorch code of Isola et al. (2017) and Zhu et al. (2017). Adam has beta_1 = 0.5 and a
    learning rate of 2e-4. The learning rate is constant for half of the training and then decays to zero.

    Args:
        jitter: whether to enlarge images by 286/256, crop them back at a random position and flip them horizontally at
            random. Images that are larger than `image_size` are cropped at random instead of enlarged.
        generator_width: number of channels of the generator's highest-resolution feature map.
        discriminator_width: number of channels of the discriminator's highest-resolution feature map.
        patch_depth: number of downsampling layers in the discriminator. With 3 layers, the discriminator classifies
            patches of 70x70 pixels.
        norm: type of normalization, for example `instance`.
        image_size, generator_optimizer, discriminator_optimizer: see `AdversarialModule`.
        **kwargs: see `AdversarialModule`.
    """

    reuses_fake = True
    directions: ClassVar[tuple[Direction, ...]] = ("a_to_b",)  # directions in which the model translates
    needed_data: ClassVar[str] = "images to translate"  # data for trainings of the model, for messages
    input_channels: int  # number of channels of the images of A

    def __init__(
        self,
        *,
        jitter: bool = True,
        generator_width: int = 64,
        discriminator_width: int = 64,
        patch_depth: int = 3,
        norm: Norm = "instance",
        image_size: Size = 256,
        generator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.5, 0.999), schedule=ConstantThenLinearSchedule()
        ),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.5, 0.999), schedule=ConstantThenLinearSchedule()
        ),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            image_size=image_size,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            **kwargs,
        )
        if self.augmentations.diffaugment or self.augmentations.augmenter is not None:
            raise RefusedInput(
                f"diffaugment and augmentation: {self.name} does not support them, because its L1 loss compares images"
                " that are not augmented; leave them out and use jitter."
            )
        refuse_below(1, patch_depth=patch_depth)
        self.jitter, self.norm, self.patch_depth = jitter, norm, patch_depth
        self.generator_width, self.discriminator_width = generator_width, discriminator_width

    @property
    def name(self) -> str:
        """Name of the model in messages."""
        return type(self).__name__.lower()

    # ---- the batch

    def refuse_batch(self, batch: Batch) -> None:
        """Raises `RefusedInput` if a batch has no images to translate, or images with a wrong number of channels."""
        if "input" not in batch:
            raise RefusedInput(
                f"{self.name} needs {self.needed_data}. The loader yields no images to translate: a loader of your own"
                " must yield dicts with input, images of A, and image, images of B."
            )
        for name, channels in (("input", self.input_channels), ("image", self.channels)):
            subject = f"the loader yields images of {name}"
            refuse_layout(batch[name], (channels, *sides(self.image_size)), subject, any_size=True)

    def dummy_batch(self, num: int) -> Batch:
        return {"input": torch.empty(num, self.input_channels, *sides(self.image_size))}

    def _jittered(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Returns crops of images, see `jittered`. Raises `RefusedInput` if the images are smaller than the crops."""
        size = sides(self.image_size)
        if any(side < least for side, least in zip(images.shape[-2:], size, strict=True)):
            raise RefusedInput(
                f"the loader yields images of shape {tuple(images.shape[1:])}, but the model expects"
                f" {(images.shape[1], *size)}, or larger images, which it crops: resize the images, or set image_size"
                " of the model."
            )
        return jittered(images, numbers, self.image_size, self.jitter)

    # ---- samples

    def translate(
        self,
        pictures: Float[Tensor, "n a h w"],
        *,
        direction: Direction = "a_to_b",
        seed: int = 0,
        weights: Weights | None = None,
        batch_size: int = 64,
    ) -> Float[Tensor, "n c h w"]:
        """Returns translations in [0, 1] of images in [0, 1] of any size.

        The networks are convolutional, so networks that were trained on crops can translate full-size images (Isola et
        al. 2017, section 3.3). Images whose height or width the network cannot halve often enough are padded by
        reflection. Their translations are cropped to the original size.

        Args:
            pictures: images of A, or images of B if `direction="b_to_a"`.
            direction: one of `directions`.
            seed: seed of dropout, if the generator uses dropout.
            weights: see `AdversarialModule.sample`.
            batch_size: number of images translated at once.

        Raises:
            RefusedInput: if the model does not translate in that direction, or if the images are not floats or have a
                wrong number of channels.
        """
        if direction not in self.directions:
            raise RefusedInput(f"direction={direction}: {self.name} only supports {' and '.join(self.directions)}.")
        self.refuse_inputs(pictures, None)
        return self.decode_in(direction, pictures * 2 - 1, seed=seed, weights=weights, batch_size=batch_size)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Float[Tensor, "n c h w"]:
        """Translates images of A to images of B, both in [0, 1], as `translate` does, but keeps the graph."""
        self.refuse_inputs(inputs, labels)
        return super().forward(inputs * 2 - 1, labels)

    def predict_step(self, data: Any, batch_idx: int, dataloader_idx: int = 0) -> Float[Tensor, "n c h w"]:
        """Translates a batch of `Trainer.predict`.

        The batch has the format of a training batch. The method translates `input` if the batch is a dict that has this
        key. Otherwise, it translates the batch's images. The images are uint8 or floats in [-1, 1].
        """
        batch = named(data)
        images = {"image": batch["input"] if "input" in batch else batch.get("image")}
        refuse_data(images, self.input_channels)
        doubt = doubt_about_range(images) if batch_idx == 0 else None
        if doubt is not None:
            logger.warning(doubt)
        translations: Tensor = self(self.to_unit_range(prepare_batch(images, self.channels_last)["image"]))
        return translations

    def refuse_inputs(self, inputs: Any, labels: Tensor | None) -> None:
        """Raises `RefusedInput` if inputs of `forward` or `translate` are not images, or if there are labels."""
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
            how = ": images / 255 converts images of uint8" if kind == torch.uint8 else ""
            raise RefusedInput(f"{self.name} needs images in [0, 1], a float tensor (n, c, h, w), but got {kind}{how}.")
        refuse_layout(inputs, (self.input_channels, *sides(self.image_size)), f"{self.name} got images", any_size=True)
        if labels is not None:
            raise RefusedInput(f"labels: {self.name} has no classes; leave them out.")

    def decode_in(
        self,
        direction: Direction,
        inputs: Float[Tensor, "n a h w"],
        *,
        seed: int = 0,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c h w"]:
        """Returns translations in [0, 1] of images in [-1, 1], see `translate`."""
        return self.decode(inputs, weights=weights, seed=seed, batch_size=batch_size)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Raises `RefusedInput`, because the generator has no random latents."""
        raise RefusedInput(
            f"{self.name} generates images from images, not from random latents: use translate(pictures)."
        )

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        return self.sampling_share(torch.arange(num), num, seed, data)

    def sampling_share(self, rows: Int64[Tensor, " n"], num: int, seed: int, data: Any = None) -> Tensor:
        return to_networks(spread(self.held_out(data)["input"], num, rows))

    def num_different(self, num: int, data: Any = None) -> int:
        return min(num, len(self.held_out(data)["input"]))

    def held_out(self, data: Any) -> Mapping[str, Tensor]:
        """Returns the images of both domains, `input` and `image`, that a datamodule excludes from training.

        Raises:
            RefusedInput: if the data are not images to translate.
        """
        if isinstance(data, UnpairedSource):
            return data.unseen
        if isinstance(data, PairedSource):
            return data.held_out
        raise RefusedInput(
            f"{self.name} needs images to translate: set input=FOLDER, or call translate(pictures). Callbacks need a"
            f" datamodule with held-out images (lit_gans.data.contracts.PairedSource or UnpairedSource): {self.name}"
            f" needs {self.needed_data}."
        )

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Batch:
        return {"input": inputs}

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        return self.sampling_batch(batch["input"], None, seed)


def spread(images: Tensor, num: int, rows: Int64[Tensor, " n"] | None = None) -> Tensor:
    """Selects `num` images at even intervals, since neighboring files are often similar.

    Args:
        images: the images to select from.
        num: number of images to select.
        rows: indices of the selected images to return. None returns all selected images.
    """
    return images[(torch.arange(num) if rows is None else rows) * len(images) // num]


def with_channels_of(images: Tensor, others: Tensor) -> Tensor:
    """Converts images to the same number of channels as `others`. If the number changes, the result is gray."""
    return images if images.shape[1] == others.shape[1] else images.mean(1, keepdim=True).expand_as(others)


def jittered(
    images: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 3"], image_size: Size, jitter: bool
) -> Float[Tensor, "n c h2 w2"]:
    """Crops each image at a random position and flips half of the images horizontally.

    Images of the crop size are first enlarged by 286/256. Larger images are cropped directly. The result depends on
    `numbers` alone.

    Args:
        images: images that are at least as large as the crops.
        numbers: random numbers in [0, 1) for the row, the column and the flip.
        image_size: height and width of the crops.
        jitter: whether to enlarge and flip images. If False, images are only cropped if they are larger than the crops.
    """
    flipped = numbers[:, 2] < 0.5
    if tuple(images.shape[-2:]) != sides(image_size):  # the loader yields full-size images
        crops = random_crops(images, numbers[:, :2], image_size)
        return torch.where(flipped[:, None, None, None], crops.flip(-1), crops) if jitter else crops
    if not jitter:
        return images
    scale = 1 / _ENLARGED
    shift = (2 * numbers[:, :2] - 1) * (1 - scale)
    sign = 1 - 2 * flipped.to(shift)
    zero = torch.zeros_like(sign)
    rows = [sign * scale, zero, shift[:, 0]], [zero, torch.full_like(zero, scale), shift[:, 1]]
    matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)
    grid = functional.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def random_crops(
    images: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 2"], image_size: Size
) -> Float[Tensor, "n c h2 w2"]:
    """Crops each image at a random position, which depends on `numbers` alone.

    Args:
        images: images that are at least as large as the crops.
        numbers: random numbers in [0, 1) for the row and the column.
        image_size: height and width of the crops.
    """
    indices = []
    for axis, (full, side) in enumerate(zip(images.shape[-2:], sides(image_size), strict=True)):
        first = (numbers[:, axis] * (full - side + 1)).floor().long()
        indices.append(first[:, None] + torch.arange(side, device=images.device))
    item = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[item, indices[0][:, :, None], indices[1][:, None, :]].permute(0, 3, 1, 2)
