"""Discriminator of pix2pix (Isola et al. 2017, section 6.1.2), which classifies each patch of an image separately."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, sides, size_value
from lit_gans.networks.blocks import Norm, draw_weights, normalization

_WIDEST = 8  # limits the channels of a feature map to 8 x width


class PatchGAN(nn.Module):
    """Maps images (N, C, H, W), and optionally their input images (N, A, H, W), to a map of logits (N, P, Q).

    Args:
        input_channels: A. 0 means that the discriminator does not receive input images.
        channels: C.
        image_size: H and W.
        width: number of channels of the first feature map. Each following map has twice as many, up to 8 x width.
        depth: number of convolutions with stride 2.
        norm: type of normalization after every convolution except the first and the last.
        affine: whether the norm `instance` has a scale and a shift for each channel.
        zero_biases: whether to initialize biases to 0, as in pix2pix and CycleGAN. If False, they keep PyTorch's
            uniform initialization.

    Raises:
        RefusedInput: if the images are too small for `depth`.
    """

    def __init__(
        self,
        input_channels: int,
        channels: int,
        image_size: Size,
        width: int = 64,
        depth: int = 3,
        norm: Norm = "instance",
        affine: bool = True,
        zero_biases: bool = True,
    ) -> None:
        super().__init__()
        if min(sides(image_size)) // 2**depth < 3:
            size = size_value(image_size)
            raise RefusedInput(
                f"patch_depth={depth}: an image of {size} pixels is too small; use a smaller patch_depth."
            )
        bias = norm != "batch" and norm != "instance"
        widths = [width * min(2**scale, _WIDEST) for scale in range(depth + 1)]
        layers: list[nn.Module] = [
            nn.Conv2d(input_channels + channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        for index in range(1, depth + 1):
            stride = 2 if index < depth else 1
            layers += [nn.Conv2d(widths[index - 1], widths[index], 4, stride, 1, bias=bias)]
            layers += [normalization(norm, widths[index], affine), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, 1, 1))
        draw_weights(self, zero_biases)

    def forward(self, images: Float[Tensor, "n c h w"], *inputs: Float[Tensor, "n a h w"]) -> Float[Tensor, "n p q"]:
        # `squeeze` would return a view, which FSDP does not track
        return self.layers(torch.cat([*inputs, images], 1)).mean(1)
