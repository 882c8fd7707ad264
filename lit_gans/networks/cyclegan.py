"""Generators of CycleGAN (Zhu et al. 2017, section 7.2), which are the residual networks of Johnson et al. (2016).

Shapes: N is the batch size, A and C are numbers of channels, H and W are height and width.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.size import Size, sides
from lit_gans.networks.blocks import Norm, Residual, cut, draw_weights, normalization, padded

_DOWNSAMPLING = 4  # factor of the two convolutions with stride 2
_SMALLEST = 2  # minimum size of the lowest-resolution feature map, required by reflection padding
_LARGE = 256  # minimum size in pixels of images for which generators have 9 blocks instead of 6


class ResidualTranslator(nn.Module):
    """Maps images (N, A, H, W) of any size in [-1, 1] to images (N, C, H, W) in [-1, 1].

    If the height or width is not a multiple of 4, the image is padded by reflection, and the output is cropped.

    Args:
        input_channels: A.
        channels: C.
        width: number of channels of the highest-resolution feature map. The next two maps have 2 x width and 4 x width
            channels.
        blocks: number of residual blocks.
        norm: type of normalization after every convolution except the last. `instance` has no scale and shift, as in
            the paper's code.
    """

    @converts_arguments
    def __init__(
        self, input_channels: int, channels: int, width: int = 64, blocks: int = 9, norm: Norm = "instance"
    ) -> None:
        super().__init__()
        bias = norm != "batch" and norm != "instance"  # these normalizations cancel the bias

        def convolution(before: int, after: int, size: int, stride: int = 1) -> list[nn.Module]:
            # convolutions with stride 2 use zero padding, as in the paper's code
            mode: Literal["reflect", "zeros"] = "reflect" if stride == 1 else "zeros"
            layer = nn.Conv2d(before, after, size, stride, size // 2, bias=bias, padding_mode=mode)
            return [layer, normalization(norm, after, affine=False)]

        def block(deep: int) -> nn.Module:
            return Residual(nn.Sequential(*convolution(deep, deep, 3), nn.ReLU(), *convolution(deep, deep, 3)))

        layers = [*convolution(input_channels, width, 7), nn.ReLU()]
        for deep in (2 * width, 4 * width):
            layers += [*convolution(deep // 2, deep, 3, stride=2), nn.ReLU()]
        layers += [block(4 * width) for _ in range(blocks)]
        for deep in (4 * width, 2 * width):
            layers += [nn.ConvTranspose2d(deep, deep // 2, 3, 2, 1, output_padding=1, bias=bias)]
            layers += [normalization(norm, deep // 2, affine=False), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, channels, 7, 1, 3, padding_mode="reflect"), nn.Tanh())
        draw_weights(self)

    def forward(self, images: Float[Tensor, "n a h w"]) -> Float[Tensor, "n c h w"]:
        small = min(images.shape[-2:]) <= _DOWNSAMPLING * (_SMALLEST - 1)
        return cut(self.layers(padded(images, _SMALLEST * _DOWNSAMPLING if small else _DOWNSAMPLING)), images)


class BothWays(nn.Module):
    """Pair of generators that translate images from domain A to domain B, and from B to A.

    Args:
        a_to_b, b_to_a: the two generators.
    """

    def __init__(self, a_to_b: nn.Module, b_to_a: nn.Module) -> None:
        super().__init__()
        self.a_to_b, self.b_to_a = a_to_b, b_to_a

    def forward(
        self, a: Float[Tensor, "n c h w"] | None = None, b: Float[Tensor, "n c h w"] | None = None
    ) -> tuple[Float[Tensor, "n c h w"], ...]:
        """Translates images `a` from A to B, and images `b` from B to A. Skips an argument that is None."""
        pairs = (self.a_to_b, a), (self.b_to_a, b)
        return tuple(network(images) for network, images in pairs if images is not None)


def default_blocks(image_size: Size) -> int:
    """Returns the default number of residual blocks: 9 for images of at least 256 pixels, otherwise 6."""
    return 9 if max(sides(image_size)) >= _LARGE else 6
