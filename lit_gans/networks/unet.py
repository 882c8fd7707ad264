"""Generator of pix2pix (Isola et al. 2017, section 6.1.1): an encoder-decoder with skip connections.

Skip connections concatenate encoder and decoder maps of equal size.

Shapes: N is the batch size, A and C are the numbers of input and image channels, H and W are height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.networks.blocks import Norm, draw_weights, normalization

_FEWEST = 4  # minimum number of scales, for images of 16 pixels
_WIDEST = 8  # limits the channels of a feature map to 8 x width
_NUM_DROPOUT = 3  # number of decoder maps with dropout
_RATE = 0.5  # dropout rate


class UNet(nn.Module):
    """Maps input images (N, A, H, W) to images (N, C, H, W) in [-1, 1] through a bottleneck.

    The encoder halves images as often as their height and width allow. If both are the same power of two, it halves
    them down to one pixel. The network is convolutional: it supports any size that is a multiple of `multiple`, not
    only the size that it was built for.

    Args:
        input_channels: A.
        channels: C.
        image_size: H and W, which must be multiples of 16.
        width: number of channels of the highest-resolution feature map. Each lower resolution has twice as many
            channels, up to 8 x width.
        norm: type of normalization after every convolution, except the first and last convolution of the encoder and
            the last convolution of the decoder. `instance` equals the paper's batch norm at batch size 1.

    Raises:
        RefusedInput: if H or W is not a multiple of 16.
    """

    @converts_arguments
    def __init__(
        self, input_channels: int, channels: int, image_size: Size, width: int = 64, norm: Norm = "instance"
    ) -> None:
        super().__init__()
        scales = _scales(image_size)
        self.multiple = 2**scales
        widths = [width * min(2**scale, _WIDEST) for scale in range(scales)]
        bias = norm != "batch" and norm != "instance"  # these normalizations cancel the bias
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for index, (shallow, deep) in enumerate(pairwise([input_channels, *widths])):
            plain = index in (0, scales - 1)
            convolution: nn.Module = nn.Conv2d(shallow, deep, 4, 2, 1, bias=bias)
            activate = nn.Identity() if index == 0 else nn.LeakyReLU(0.2)
            self.encoder.append(
                nn.Sequential(activate, convolution, nn.Identity() if plain else normalization(norm, deep))
            )
        for index, (deep, shallow) in enumerate(pairwise([*widths[::-1], channels])):
            last = index == scales - 1
            convolution = nn.ConvTranspose2d(deep * (1 if index == 0 else 2), shallow, 4, 2, 1, bias=bias or last)
            self.decoder.append(
                nn.Sequential(nn.ReLU(), convolution, nn.Tanh() if last else normalization(norm, shallow))
            )
        self._dropout_widths = [widths[-2 - index] for index in range(_NUM_DROPOUT)]
        draw_weights(self)

    def dropout_shapes(self, height: int, width: int) -> list[tuple[int, int, int]]:
        """Returns the shape of each decoder map with dropout, for inputs of the given height and width."""
        factors = [2 ** (index + 1) / self.multiple for index in range(_NUM_DROPOUT)]
        return [
            (channels, int(height * factor), int(width * factor))
            for channels, factor in zip(self._dropout_widths, factors, strict=True)
        ]

    def forward(self, inputs: Float[Tensor, "n a h w"], uniform: Sequence[Tensor] = ()) -> Float[Tensor, "n c h w"]:
        """Translates images.

        Args:
            inputs: images in [-1, 1].
            uniform: random numbers in [0, 1), one tensor (N, *shape) for each shape in `dropout_shapes`. Dropout sets
                entries to zero where the number is below 0.5. Dropout is the only noise (section 6.2.1). An empty
                sequence disables dropout.
        """
        maps, features = [], inputs
        for layer in self.encoder:
            features = layer(features)
            maps.append(features)
        maps.pop()
        for index, layer in enumerate(self.decoder):
            features = layer(features)
            if index < len(uniform):
                features = features * (uniform[index] >= _RATE) / (1 - _RATE)
            if maps:
                features = torch.cat([features, maps.pop()], 1)
        return features


def _scales(image_size: Size) -> int:
    """Returns the number of times that both the height and the width can be halved."""
    both = sides(image_size)[0] | sides(image_size)[1]
    scales = (both & -both).bit_length() - 1
    if scales < _FEWEST:
        least = 2**_FEWEST
        nearest = as_size([max(least, round(side / least) * least) for side in sides(image_size)])
        raise RefusedInput(
            f"image_size={size_value(image_size)}: the unet halves images at least {_FEWEST} times, so height and"
            f" width must be multiples of {least} pixels; the nearest size is {size_value(nearest)}."
        )
    return scales
