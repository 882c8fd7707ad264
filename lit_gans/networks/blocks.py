"""Building blocks of the networks: convolutions, normalizations, class conditioning, and padding.

Shapes: N is the batch size, C is the number of channels, H and W are height and width, F is the number of features.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Literal, TypeGuard

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops.misc import SqueezeExcitation

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.networks.grouped_convolution import GroupedConv2d, GroupedConvTranspose2d

Block = Literal["plain", "grouped", "separable", "inverted_residual"]
Norm = Literal["none", "batch", "layer", "instance"]
Dims = Literal[1, 2, 3]

_EXPANSION = 2  # ratio of the channels inside an inverted residual to the channels at its narrower end
_SQUEEZE = 8  # ratio of the channels inside an inverted residual to the squeezed channels
_GROUPS = 4  # maximum number of groups of a grouped convolution; the actual number divides both numbers of channels


def convolution(
    block: Block,
    channels_in: int,
    channels_out: int,
    kernel_size: int,
    stride: int,
    padding: int,
    bias: bool,
    transposed: bool = False,
) -> nn.Module:
    """Returns a convolution or a cheaper replacement.

    Args:
        block: type of the convolution. `plain` is a standard convolution. `grouped` has 4 groups of channels and a
            quarter of the weights (Krizhevsky et al. 2012). `separable` is a depthwise convolution followed by a 1x1
            convolution (Howard et al. 2017). `inverted_residual` is a 1x1 expansion, a depthwise convolution,
            squeeze-and-excitation and a 1x1 projection (Howard et al. 2019).
        channels_in, channels_out: number of input and output channels.
        kernel_size, stride, padding: settings of the spatial convolution.
        bias: whether the last convolution has a bias.
        transposed: whether the spatial convolution is transposed, to upsample the feature map.
    """
    kinds: Any = (nn.Conv2d, nn.ConvTranspose2d) if block == "plain" else (GroupedConv2d, GroupedConvTranspose2d)
    spatial = kinds[transposed]
    if block in ("plain", "grouped"):
        groups = gcd(channels_in, channels_out, _GROUPS) if block == "grouped" else 1
        return spatial(channels_in, channels_out, kernel_size, stride, padding, groups=groups, bias=bias)
    wide = channels_in if block == "separable" else _EXPANSION * min(channels_in, channels_out)
    depthwise = spatial(wide, wide, kernel_size, stride, padding, groups=wide, bias=block == "inverted_residual")
    project = nn.Conv2d(wide, channels_out, 1, bias=bias)
    if block == "separable":
        return nn.Sequential(depthwise, project)
    expand = nn.Conv2d(channels_in, wide, 1)
    excite = SqueezeExcitation(wide, max(1, wide // _SQUEEZE))
    layers = nn.Sequential(expand, nn.LeakyReLU(0.2), depthwise, nn.LeakyReLU(0.2), excite, project)
    return Residual(layers) if stride == 1 and channels_in == channels_out else layers


class UpsampledConv2d(nn.Conv2d):
    """Nearest-neighbor upsampling by 2 followed by a 3x3 convolution, computed without the upsampled feature map.

    The two operations equal one transposed convolution with a 4x4 kernel. This convolution needs 4 instead of 9
    products per output, because each output depends on only 2x2 input pixels. The code of Karras et al. (2018),
    "Progressive Growing of GANs", fuses the operations in the same way. Results differ by rounding, because the order
    of summation differs.
    """

    def __init__(self, channels_in: int, channels_out: int, bias: bool = True) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1, bias=bias)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        kernel = 4 * _widened(self.weight.flip(2, 3).transpose(0, 1))
        return functional.conv_transpose2d(features, kernel, self.bias, stride=2, padding=1)


class PooledConv2d(nn.Conv2d):
    """3x3 convolution followed by 2x2 average pooling, computed as one 4x4 convolution with stride 2.

    This needs 16 instead of 36 products per output, see `UpsampledConv2d`. The height and width must be even.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        return functional.conv2d(features, _widened(self.weight), self.bias, stride=2, padding=1)


def _widened(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "o i 4 4"]:
    """Returns the mean of the four placements of a kernel inside a kernel that is one pixel larger."""
    return functional.avg_pool2d(weight, 2, stride=1, padding=1)


_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.GroupNorm),
)


def draw_weights(network: nn.Module, zero_biases: bool = True) -> None:
    """Initializes a network as in pix2pix and CycleGAN (Isola et al. 2017, Zhu et al. 2017).

    The weights of all convolutions are sampled from N(0, 0.02), and the scales of all normalizations from N(1, 0.02).

    Args:
        network: network whose convolutions and normalizations are initialized.
        zero_biases: whether to set the biases of the convolutions to 0, as in both papers' code. If False, biases keep
            PyTorch's uniform initialization.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if zero_biases and layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, _NORMS) and layer.affine:
            nn.init.normal_(layer.weight, 1.0, 0.02)  # shifts are already 0


class Residual(nn.Module):
    """Adds its input to the output of its layers."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return features + self.layers(features)


def is_cheap(layer: nn.Module) -> TypeGuard[nn.Conv2d | nn.ConvTranspose2d]:
    """Returns whether a layer is a grouped or 1x1 convolution.

    Its fan-in is too small for a fixed standard deviation.
    """
    return isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and (layer.groups > 1 or layer.kernel_size == (1, 1))


def normalization(norm: Norm, channels: int, affine: bool = True, dims: Dims = 2) -> nn.Module:
    """Returns a normalization layer for feature maps.

    Args:
        norm: type of normalization. `batch` normalizes each channel over the batch, `layer` normalizes each image, and
            `instance` normalizes each channel of each image.
        channels: number of channels of the feature map.
        affine: whether `instance` has a scale and a shift for each channel. `batch` and `layer` always have them.
        dims: number of spatial dimensions of the feature map.
    """
    batch_norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1]
    instance_norm = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dims - 1]
    layers: dict[str, Any] = {
        "none": nn.Identity,
        "batch": lambda: batch_norm(channels),
        "layer": lambda: nn.GroupNorm(1, channels),
        "instance": lambda: instance_norm(channels, affine=affine),
    }
    return layers[norm]()


def class_embedding(num_classes: int, latent_dim: int) -> nn.Embedding:
    """Returns the class embedding (K, Z) that a generator concatenates with its latents.

    Embeddings are initialized with a norm of about 1, like the one-hot vectors of conditional GANs (Mirza and Osindero
    2014). With PyTorch's N(0, 1), the embeddings would be as large as the latents. The generator would then learn to
    ignore the latents, and generate a single image for each class.
    """
    embedding = nn.Embedding(num_classes, latent_dim)
    with torch.no_grad():
        embedding.weight.mul_(latent_dim**-0.5)
    return embedding


class ConditionalBatchNorm2d(nn.Module):
    """Batch normalization with a separate scale and shift for each class (de Vries et al. 2017)."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.scale, self.shift = nn.Embedding(num_classes, channels), nn.Embedding(num_classes, channels)
        nn.init.ones_(self.scale.weight)
        nn.init.zeros_(self.shift.weight)

    def forward(self, features: Float[Tensor, "n c h w"], labels: Int64[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
        scale, shift = (table(labels)[:, :, None, None] for table in (self.scale, self.shift))
        return self.norm(features) * scale + shift


class ScoreHead(nn.Linear):
    """Maps features (N, F) to logits (N,).

    If there are classes, the logits include the projection of the features onto the class embedding (Miyato and Koyama
    2018, equation 8).

    Args:
        features: F.
        num_classes: number of classes; 0 for an unconditional network.
    """

    def __init__(self, features: int, num_classes: int = 0) -> None:
        super().__init__(features, 1)
        self.projection = nn.Embedding(num_classes, features) if num_classes else None
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, 0.0, 0.02)

    def forward(self, features: Float[Tensor, "n f"], labels: Int64[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        scores = super().forward(features).sum(1)  # `squeeze` would return a view, which FSDP does not track
        if self.projection is None:
            return scores
        return scores + (self.projection(labels) * features).sum(1)


def coarsest_map(image_size: Size, network: str) -> tuple[tuple[int, int], int]:
    """Returns the height and width of the lowest-resolution feature map, and how often it is doubled.

    The shorter side of this map has 4 to 7 pixels. For example, images of 64x64 pixels have a 4x4 map that is doubled
    four times. Images of 96x96 pixels have a 6x6 map, and images that are 96 high and 160 wide have a 6x10 map.

    Raises:
        RefusedInput: if the images are smaller than 16 pixels, or doubling such a map cannot produce their size.
    """
    height, width = sides(image_size)
    step = _step(min(height, width))
    if step < 4 or height % step or width % step:
        points = "; points need network=mlp" if image_size == 1 else ""
        raise RefusedInput(
            f"image_size={size_value(image_size)}: the {network} networks double a map whose shorter side has 4 to 7"
            f" pixels, which gives 16, 20, 24, 28, 32, 40, 48, 56, 64 and so on; the nearest size is"
            f" {size_value(_nearest_size(height, width))}{points}."
        )
    return (height // step, width // step), step.bit_length() - 1


def _step(shorter: int) -> int:
    """Returns the power of two by which the shorter side must be divided to get 4 to 7 pixels."""
    return 1 << max(0, (shorter // 4).bit_length() - 1)


def _nearest_size(height: int, width: int) -> Size:
    """Returns the nearest supported size. The longer side is rounded to a multiple of the shorter side's step."""
    step = _step(min(height, width))
    shorter = max(16, round(min(height, width) / step) * step)
    step = _step(shorter)
    return as_size([max(shorter, round(side / step) * step) for side in (height, width)])


def multiple_of(side: int, multiple: int) -> int:
    """Rounds a length up to a multiple of a number."""
    return -(-side // multiple) * multiple


def padded(images: Float[Tensor, "n c h w"], multiple: int) -> Float[Tensor, "n c h2 w2"]:
    """Pads images by reflection at the bottom and on the right, so that both sides are multiples of `multiple`.

    Unlike `torch.nn.functional.pad`, which reflects only once, this function can pad small images by more than their
    size.
    """
    for axis in (-2, -1):
        side = images.shape[axis]
        padded_side = multiple_of(side, multiple)
        if padded_side != side:
            index = torch.arange(padded_side, device=images.device) % max(1, 2 * (side - 1))
            images = images.index_select(axis, torch.where(index < side, index, 2 * (side - 1) - index))
    return images


def cut(images: Float[Tensor, "n c h2 w2"], like: Float[Tensor, "n a h w"]) -> Float[Tensor, "n c h w"]:
    """Crops the outputs for padded images to the height and width of the unpadded images `like`."""
    if images.shape[-2:] == like.shape[-2:]:
        return images
    return images[..., : like.shape[-2], : like.shape[-1]]
