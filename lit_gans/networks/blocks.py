"""Building blocks of the networks: convolutions of three types, normalizations, class conditioning, padding.

Shapes: N batch, C channels, H and W height and width, F features.
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

Block = Literal["plain", "grouped", "separable", "inverted_residual"]
Norm = Literal["none", "batch", "layer", "instance"]

_EXPANSION = 2  # ratio of the channels inside an inverted residual to those at its narrower end
_SQUEEZE = 8
_GROUPS = 4  # of a grouped convolution; as many as divide both numbers of channels


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
        block: `plain`; `grouped`, in 4 groups of channels (Krizhevsky et al. 2012), a quarter of the weights;
            `separable`, a depthwise and a 1x1 convolution (Howard et al. 2017); `inverted_residual`, a 1x1 expansion, a
            depthwise convolution, squeeze-and-excitation and a 1x1 projection (Howard et al. 2019).
        channels_in, channels_out: number of input and output channels.
        kernel_size, stride, padding: settings of the spatial convolution.
        bias: whether the last convolution has a bias.
        transposed: whether the spatial convolution is transposed, which enlarges the map.
    """
    spatial: Any = nn.ConvTranspose2d if transposed else nn.Conv2d
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
    """A 3x3 convolution of the map that nearest-neighbor upsampling by 2 gives, without making that map.

    Four neighboring outputs see the same 2x2 pixels of the small map, so that a transposed convolution by a 4x4 kernel
    gives the same with 4 products each instead of 9 (Karras et al. 2018, "Progressive Growing of GANs", whose code
    fuses them likewise). Sums are in another order, so that results differ by rounding.
    """

    def __init__(self, channels_in: int, channels_out: int, bias: bool = True) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1, bias=bias)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        kernel = _widened(self.weight.flip(2, 3).transpose(0, 1))
        return functional.conv_transpose2d(features, kernel, self.bias, stride=2, padding=1)


class PooledConv2d(nn.Conv2d):
    """A 3x3 convolution and 2x2 average pooling of a map with even height and width, as one 4x4 convolution.

    That takes 16 products for each output instead of 36; see `UpsampledConv2d`.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        return functional.conv2d(features, _widened(self.weight) / 4, self.bias, stride=2, padding=1)


def _widened(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "o i 4 4"]:
    """Returns the sum of a kernel at the four positions inside a kernel that is one pixel larger."""
    rows = functional.pad(weight, (0, 0, 1, 0)) + functional.pad(weight, (0, 0, 0, 1))
    return functional.pad(rows, (1, 0)) + functional.pad(rows, (0, 1))


def draw_weights(network: nn.Module, zero_biases: bool = True) -> None:
    """Draws the weights of all convolutions from N(0, 0.02) and the scales of all norms from N(1, 0.02), as pix2pix and
    CycleGAN do (Isola et al. 2017, Zhu et al. 2017).

    Args:
        network: network whose convolutions and norms are initialized.
        zero_biases: whether the biases of the convolutions are set to 0, as both authors do, or keep PyTorch's uniform
            initialization.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if zero_biases and layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d | nn.InstanceNorm2d | nn.GroupNorm) and layer.affine:
            nn.init.normal_(layer.weight, 1.0, 0.02)  # shifts are 0


class Residual(nn.Module):
    """Adds its input to the output of its layers."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return features + self.layers(features)


def is_cheap(layer: nn.Module) -> TypeGuard[nn.Conv2d | nn.ConvTranspose2d]:
    """Whether a convolution is grouped or 1x1, with a fan-in too small for a fixed standard deviation of weights."""
    return isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and (layer.groups > 1 or layer.kernel_size == (1, 1))


def normalization(norm: Norm, channels: int, affine: bool = True) -> nn.Module:
    """Returns the normalization of a map: over the batch, each image (`layer`) or each channel (`instance`).

    Args:
        norm: type of the normalization.
        channels: number of channels of the map.
        affine: whether `instance` has a scale and a shift for each channel; `batch` and `layer` always have them.
    """
    layers: dict[str, Any] = {
        "none": nn.Identity,
        "batch": lambda: nn.BatchNorm2d(channels),
        "layer": lambda: nn.GroupNorm(1, channels),
        "instance": lambda: nn.InstanceNorm2d(channels, affine=affine),
    }
    return layers[norm]()


def class_embedding(num_classes: int, latent_dim: int) -> nn.Embedding:
    """Returns the class embedding (K, Z) that a generator concatenates with its latents.

    Embeddings start with a norm of about 1, as the one-hot vectors of conditional GANs (Mirza and Osindero 2014). With
    PyTorch's N(0, 1), they would be as large as the latents, and the generator would learn to ignore the latents and
    generate a single image for each class.
    """
    embedding = nn.Embedding(num_classes, latent_dim)
    with torch.no_grad():
        embedding.weight.mul_(latent_dim**-0.5)
    return embedding


class ConditionalBatchNorm2d(nn.Module):
    """Batch norm with a scale and shift for each class (de Vries et al. 2017)."""

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
    """Maps features (N, F) to logits (N,); with classes, adds a projection of the features on the class embedding
    (Miyato and Koyama 2018, equation 8).

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
        scores = super().forward(features).sum(1)  # not a view, which FSDP would not track
        if self.projection is None:
            return scores
        return scores + (self.projection(labels) * features).sum(1)


def coarsest_map(image_size: Size, network: str) -> tuple[tuple[int, int], int]:
    """Returns height and width of the coarsest map of a network, and how often it is doubled to the size of the images.

    Its shorter side has 4 to 7 pixels: images of 64 pixels have a 4x4 map that is doubled four times, those of 96 a 6x6
    map, and images 96 high and 160 wide a map 6 high and 10 wide.

    Raises:
        RefusedInput: the images are smaller than 16 pixels, or doubling cannot give their size.
    """
    height, width = sides(image_size)
    step = _step(min(height, width))
    if step < 4 or height % step or width % step:
        points = "; points need network=mlp" if image_size == 1 else ""
        raise RefusedInput(
            f"image_size={size_value(image_size)}: the {network} networks double a map whose shorter side has 4 to 7"
            f" pixels, as for 16, 20, 24, 28, 32, 40, 48, 56, 64 and so on; the nearest size is"
            f" {size_value(_nearest_size(height, width))}{points}."
        )
    return (height // step, width // step), step.bit_length() - 1


def _step(shorter: int) -> int:
    """Returns the power of two of which the shorter side of an image has 4 to 7."""
    return 1 << max(0, (shorter // 4).bit_length() - 1)


def _nearest_size(height: int, width: int) -> Size:
    """Returns the nearest size that doubling gives; the shorter side comes first, the longer one follows its step."""
    step = _step(min(height, width))
    shorter = max(16, round(min(height, width) / step) * step)
    step = _step(shorter)
    return as_size([max(shorter, round(side / step) * step) for side in (height, width)])


def multiple_of(side: int, multiple: int) -> int:
    """Returns the smallest multiple that is not less than a length."""
    return -(-side // multiple) * multiple


def padded(images: Float[Tensor, "n c h w"], multiple: int) -> Float[Tensor, "n c h2 w2"]:
    """Pads images at the bottom and on the right to multiples of a number of pixels, by reflection.

    Unlike `torch.nn.functional.pad`, which reflects once, it pads small images by more than their size.
    """
    for axis in (-2, -1):
        side = images.shape[axis]
        wanted = multiple_of(side, multiple)
        if wanted != side:
            there = torch.arange(wanted, device=images.device) % max(1, 2 * (side - 1))
            images = images.index_select(axis, torch.where(there < side, there, 2 * (side - 1) - there))
    return images


def cut(images: Float[Tensor, "n c h2 w2"], like: Float[Tensor, "n a h w"]) -> Float[Tensor, "n c h w"]:
    """Cuts what was made of padded images to the height and width that they had before."""
    if images.shape[-2:] == like.shape[-2:]:
        return images
    return images[..., : like.shape[-2], : like.shape[-1]]
