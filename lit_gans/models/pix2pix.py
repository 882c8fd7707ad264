"""pix2pix: Isola, Zhu, Zhou and Efros 2017, "Image-to-Image Translation with Conditional Adversarial Networks"."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import Noise, mix
from lit_gans.common.size import Size, sides
from lit_gans.data.contracts import Paired
from lit_gans.data.images import to_networks, to_unit_range
from lit_gans.networks.blocks import Norm
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.networks.unet import UNet
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.attached import data_of
from lit_gans.training.batch import Batch, Inputs, tensors
from lit_gans.training.crops import multiple_of, padded, random_crops
from lit_gans.training.losses import logistic_discriminator, non_saturating_generator
from lit_gans.training.optim import Optimizer
from lit_gans.training.sampling import Weights
from lit_gans.training.schedules import ConstantThenLinear, Number, refuse_weight
from lit_gans.training.scored import Scored

_ENLARGED = 286 / 256  # then a random crop of the original size (section 6.2)


class Pix2Pix(AdversarialModule):
    """Translates images: a U-Net, a patch discriminator that also sees the input image, and an L1 term.

    The defaults follow sections 3 and 6: 100 times L1, the discriminator's loss halved, Adam at 2e-4 with
    beta_1 = 0.5, constant for half of the training and then decaying to zero; the paper's batch size is 1. Dropout is
    the only noise and stays active when sampling. The data must be pairs: `data=digit_edges`, `emoji_lines` or
    `paired_folder`.

    Args:
        l1_weight: weight of the mean absolute difference to the target; may be a schedule.
        jitter: whether to enlarge pairs by 286/256, crop them back at a random position and mirror them at random;
            pairs that are larger than `image_size` are always cropped at random instead, and not enlarged.
        input_channels: channels of the input images; null uses the number of channels of the target images.
        generator_width: channels of the generator's finest map.
        discriminator_width: channels of the discriminator's finest map.
        patch_depth: number of downsampling layers in the discriminator; 3 classifies patches of 70x70 pixels.
        norm: normalization; `instance` equals the paper's batch norm at batch size 1.
        image_size, generator_optimizer, discriminator_optimizer: see `AdversarialModule`.
        **kwargs: see `AdversarialModule`.
    """

    reuses_fake = True

    def __init__(
        self,
        l1_weight: Number = 100.0,
        jitter: bool = True,
        input_channels: int | None = None,
        generator_width: int = 64,
        discriminator_width: int = 64,
        patch_depth: int = 3,
        norm: Norm = "instance",
        image_size: Size = 256,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.5, 0.999), schedule=ConstantThenLinear()),
        discriminator_optimizer: Optimizer = Optimizer(
            "Adam", lr=2e-4, betas=(0.5, 0.999), schedule=ConstantThenLinear()
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
            name = "diffaugment" if self.augmentations.diffaugment else "augmentation"
            raise RefusedInput(
                f"{name}: the L1 loss compares images that are not augmented; leave it out, pix2pix has jitter."
            )
        refuse_weight("l1_weight", l1_weight)
        refuse_below(
            1, generator_width=generator_width, discriminator_width=discriminator_width, patch_depth=patch_depth
        )
        self.l1_weight, self.jitter, self.norm = l1_weight, jitter, norm
        self.input_channels = input_channels or self.channels
        self.generator_width, self.discriminator_width = generator_width, discriminator_width
        self.patch_depth = patch_depth
        shape = (self.input_channels, self.channels, self.image_size)
        with self.building():
            self.generator = UNet(*shape, generator_width, norm)
            self.discriminator = PatchGAN(*shape, discriminator_width, patch_depth, norm)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        data = data_of(self.trainer)
        theirs = data.input_channels if isinstance(data, Paired) else None
        if data is not None and theirs != self.input_channels:
            raise RefusedInput(
                f"pix2pix needs pairs whose inputs have {self.input_channels} channels, and this data has"
                f" {theirs or 'no pairs'}: use data=digit_edges, data=emoji_lines or data=paired_folder, or set"
                " model.input_channels."
            )

    # ---- the batch: pairs, one crop for both images, and dropout noise

    def sample_noise(self, noise: Noise, num: int) -> Inputs:
        dropout = self._dropout(noise, num, *sides(self.image_size))
        return cast(Inputs, dropout | {"jitter": noise.uniform("jitter", num, 3)})

    def _dropout(self, noise: Noise, num: int, height: int, width: int) -> dict[str, Tensor]:
        """Returns the random numbers of the dropout for inputs of a size, which `generate` pads."""
        unet = cast(UNet, self.generator)
        shapes = unet.dropout_shapes(multiple_of(height, unet.multiple), multiple_of(width, unet.multiple))
        return {f"dropout_{index}": noise.uniform(f"dropout {index}", num, *s) for index, s in enumerate(shapes)}

    def dummy_batch(self, num: int) -> Inputs:
        return {"input": torch.empty(num, self.input_channels, *sides(self.image_size))}

    def augment(self, batch: Batch) -> Batch:
        size = sides(self.image_size)
        if tuple(batch["image"].shape[-2:]) != size:  # whole pictures
            crops = {
                name: random_crops(tensors(batch)[name], batch["jitter"][:, :2], size) for name in ("image", "input")
            }
            if self.jitter:
                mirrored = (batch["jitter"][:, 2] < 0.5)[:, None, None, None]
                crops = {name: torch.where(mirrored, crop.flip(-1), crop) for name, crop in crops.items()}
            return cast(Batch, {**batch, **crops})
        if not self.jitter:
            return batch
        share = 1 / _ENLARGED
        shift = (2 * batch["jitter"][:, :2] - 1) * (1 - share)
        mirror = 1 - 2 * (batch["jitter"][:, 2] < 0.5).to(shift)
        zero = torch.zeros_like(mirror)
        rows = [mirror * share, zero, shift[:, 0]], [zero, torch.full_like(zero, share), shift[:, 1]]
        matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)
        return {**batch, "image": _crop(batch["image"], matrix), "input": _crop(batch["input"], matrix)}

    def generate(self, generator: nn.Module, batch: Inputs) -> Tensor:
        noise = [tensor for name, tensor in tensors(batch).items() if name.startswith("dropout_")]
        whole = padded(batch["input"], cast(UNet, self.generator).multiple)
        images: Tensor = generator(whole, noise)
        if whole is batch["input"]:
            return images
        height, width = batch["input"].shape[-2:]
        return images[..., :height, :width]

    def condition(self, batch: Inputs) -> tuple[Tensor, ...]:
        return (batch["input"],)

    # ---- losses

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real, fake = (self.discriminator(images, batch["input"]) for images in (real, fake))
        return {"discriminator": Scored(logistic_discriminator(real, fake) / 2, real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        adversarial = non_saturating_generator(self.discriminator(fake, batch["input"]))
        return adversarial + self.now(self.l1_weight) * functional.l1_loss(fake, batch["image"])

    # ---- samples

    def translate(
        self, pictures: Float[Tensor, "n a h w"], *, seed: int = 0, weights: Weights | None = None, batch_size: int = 64
    ) -> Float[Tensor, "n c h w"]:
        """Returns translations in [0, 1] of images in [0, 1], which may have any size; `seed` seeds dropout.

        The networks are convolutional: those that were trained on crops translate whole pictures (section 3.3 of the
        paper). Sides that they cannot halve often enough are padded by reflection, and the translation is cut.
        """
        return self.decode(pictures * 2 - 1, weights=weights, seed=seed, batch_size=batch_size)

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        if not isinstance(data, Paired):
            raise RefusedInput(
                "pix2pix translates images: give input=FOLDER, or call translate(pictures); the callback Samples"
                " needs a datamodule of pairs."
            )
        pictures = data.held_out["input"]
        return to_networks(pictures[_spread(num, len(pictures))])

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Inputs:
        noise = Noise(torch.Generator(device=inputs.device), (mix(seed, "samples"),))
        return cast(Inputs, {"input": inputs, **self._dropout(noise, len(inputs), *inputs.shape[-2:])})

    def sampling_batch_like(self, batch: Batch, seed: int) -> Inputs:
        return self.sampling_batch(batch["input"], None, seed)

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Tensor, int]:
        """Returns inputs, translations and targets; each row of the grid shows two triples."""
        num = max(1, num // 3)
        inputs = self.sampling_inputs(num, seed, data)
        targets = data.held_out["image"]
        targets = to_unit_range(targets[_spread(num, len(targets))])
        images = self.decode(inputs, seed=seed).cpu()
        pictures = inputs.add(1).div(2)
        if pictures.shape[1] != images.shape[1]:
            pictures = pictures.mean(1, keepdim=True).expand_as(images)
        return torch.stack([pictures, images, targets], 1).flatten(0, 1), 6


def _crop(images: Tensor, matrix: Tensor) -> Tensor:
    grid = functional.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def _spread(num: int, size: int) -> Tensor:
    """Returns `num` indices spread evenly over `size` rows, since neighboring files are often similar."""
    return torch.arange(num) * size // num
