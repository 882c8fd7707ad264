"""pix2pix: Isola, Zhu, Zhou and Efros 2017, "Image-to-Image Translation with Conditional Adversarial Networks"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise, mix
from lit_gans.common.size import sides
from lit_gans.data.contracts import UnpairedSource
from lit_gans.data.images import to_unit_range
from lit_gans.networks.blocks import cut, multiple_of, padded
from lit_gans.networks.patchgan import PatchGAN
from lit_gans.networks.unet import UNet
from lit_gans.training.batch import Batch
from lit_gans.training.callback import data_of
from lit_gans.training.losses import Scored, logistic_discriminator, non_saturating_generator
from lit_gans.training.schedules import Number, refuse_weights
from lit_gans.training.translator import Translator, spread, with_channels_of


class Pix2Pix(Translator):
    """Translates images with a U-Net, a patch discriminator that also receives the input image, and an L1 loss.

    The defaults follow sections 3 and 6. The L1 weight is 100, and the discriminator's loss is halved. Adam has a
    learning rate of 2e-4 and beta_1 = 0.5. The paper's batch size is 1. The learning rate is constant for half of the
    training and then decays to zero, as in the authors' later PyTorch code. In the paper, the learning rate is
    constant. Dropout is the only noise, and it stays active during sampling. The data must be pairs:
    `data=digit_edges`, `emoji_lines` or `paired_folder`.

    Args:
        l1_weight: weight of the mean absolute difference to the target. It can be a schedule.
        input_channels: number of channels of the input images. null uses the number of channels of the target images.
        **kwargs: see `Translator` and `AdversarialModule`.
    """

    needed_data = "pairs: use data=digit_edges, data=emoji_lines or data=paired_folder"
    generator: UNet

    def __init__(self, l1_weight: Number = 100.0, input_channels: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        refuse_weights(l1_weight=l1_weight)
        self.l1_weight = l1_weight
        self.input_channels = input_channels or self.channels
        shape = (self.input_channels, self.channels, self.image_size)
        with self.building():
            self.generator = UNet(*shape, self.generator_width, self.norm)
            self.discriminator = PatchGAN(*shape, self.discriminator_width, self.patch_depth, self.norm)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit" and isinstance(data_of(self.trainer), UnpairedSource):  # its batches look like pairs
            raise RefusedInput(f"{self.name} needs {self.needed_data}.")

    # ---- the batch: pairs with the same crop for both images, and dropout noise

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        dropout = self._dropout(noise, num, *sides(self.image_size))
        return dropout | {"jitter": noise.uniform("jitter", num, 3)}

    def _dropout(self, noise: Noise, num: int, height: int, width: int) -> dict[str, Tensor]:
        """Samples the random numbers for dropout.

        Their shapes include the padding that `generate` adds to the inputs.
        """
        multiple = self.generator.multiple
        shapes = self.generator.dropout_shapes(multiple_of(height, multiple), multiple_of(width, multiple))
        return {f"dropout_{index}": noise.uniform(f"dropout {index}", num, *s) for index, s in enumerate(shapes)}

    def augment(self, batch: Batch) -> Batch:
        shapes = [tuple(batch[name].shape[-2:]) for name in ("input", "image")]
        if shapes[0] != shapes[1]:  # crops of different sizes would show different parts
            raise RefusedInput(
                f"the loader yields pairs whose input has the height and width {shapes[0]}, but whose image has"
                f" {shapes[1]}: {self.name} crops both images of a pair at the same position; resize them to one size."
            )
        image, inputs = (self._jittered(batch[name], batch["jitter"]) for name in ("image", "input"))
        return {**batch, "image": image, "input": inputs}

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        noise = [tensor for name, tensor in batch.items() if name.startswith("dropout_")]
        return cut(generator(padded(batch["input"], self.generator.multiple), noise), batch["input"])

    def condition(self, batch: Batch) -> tuple[Tensor, ...]:
        return (batch["input"],)

    # ---- losses

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real, fake = (self.discriminator(images, batch["input"]) for images in (real, fake))
        return {"discriminator": Scored(logistic_discriminator(real, fake) / 2, real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        adversarial = non_saturating_generator(self.discriminator(fake, batch["input"]))
        return adversarial + self.now(self.l1_weight) * functional.l1_loss(fake, batch["image"])

    # ---- samples

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Batch:
        noise = Noise(torch.Generator(device=inputs.device), (mix(seed, "samples"),))
        return {"input": inputs, **self._dropout(noise, len(inputs), *inputs.shape[-2:])}

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Tensor, int]:
        """Returns triples of input, translation and target, with two triples in each row of the grid."""
        num = max(1, num // 3)
        inputs = self.sampling_inputs(num, seed, data)
        targets = to_unit_range(spread(self.held_out(data)["image"], num))
        images = self.decode(inputs, seed=seed).cpu()
        inputs = with_channels_of(inputs.add(1).div(2), images)
        return torch.stack([inputs, images, targets], 1).flatten(0, 1), 6
