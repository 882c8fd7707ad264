"""Discriminator of pix2pix (Isola et al. 2017, section 6.1.2), which classifies each patch of an image separately."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, sides, size_value
from lit_gans.networks.blocks import Dims, Norm, draw_weights, normalization
from lit_gans.networks.features import WithFeatures

_WIDEST = 8  # limits the channels of a feature map to 8 x width


class PatchGAN(nn.Module):
    """Maps images (N, C, H, W), and optionally their input images (N, A, H, W), to a map of logits (N, P, Q).

    With other `dims`, this module maps signals (N, C, L) to logits (N, P), or volumes (N, C, D, H, W) to logits (N, O,
    P, Q).

    Args:
        input_channels: A. 0 means that the discriminator does not receive input images.
        channels: C.
        image_size: H and W. With other `dims`, the length of the shortest side.
        width: number of channels of the first feature map. Each following map has twice as many channels, up to 8 x
            width.
        depth: number of convolutions with stride 2.
        norm: type of normalization after every convolution except the first and the last.
        affine: whether the norm `instance` has a scale and a shift for each channel.
        zero_biases: whether to initialize biases to 0, as in pix2pix and CycleGAN. If False, biases keep PyTorch's
            uniform initialization.
        dims: number of dimensions of the data: 1 for signals, 2 for images, 3 for volumes.
        features: whether to return `WithFeatures`, with the outputs of all layers except the last as features.

    Raises:
        RefusedInput: if the images are too small for `depth`.
    """

    @converts_arguments
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
        dims: Dims = 2,
        features: bool = False,
    ) -> None:
        super().__init__()
        self.features = features
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        if min(sides(image_size)) // 2**depth < 3:
            size = size_value(image_size)
            raise RefusedInput(
                f"depth={depth} (patch_depth of a GAN): an image of {size} pixels is too small; use a smaller depth."
            )
        bias = norm != "batch" and norm != "instance"
        widths = [width * min(2**scale, _WIDEST) for scale in range(depth + 1)]
        layers: list[nn.Module] = [
            convolution(input_channels + channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        for index in range(1, depth + 1):
            stride = 2 if index < depth else 1
            layers += [convolution(widths[index - 1], widths[index], 4, stride, 1, bias=bias)]
            layers += [normalization(norm, widths[index], affine, dims), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers, convolution(widths[-1], 1, 4, 1, 1))
        draw_weights(self, zero_biases)

    def forward(
        self, images: Float[Tensor, "n c *shape"], *inputs: Float[Tensor, "n a *shape"]
    ) -> Float[Tensor, "n *patches"] | WithFeatures:
        hidden, features = torch.cat([*inputs, images], 1), []
        if not self.features:
            # `squeeze` would return a view, which FSDP does not track
            return self.layers(hidden).mean(1)
        for layer in self.layers:
            hidden = layer(hidden)
            if isinstance(layer, nn.LeakyReLU):
                features.append(hidden)
        return WithFeatures(hidden.mean(1), features)
