"""Operations of ADA (Karras et al. 2020, appendix B, figure 12): blits, geometry, color and cutout.

Each operation is applied with a probability. Images are in [-1, 1]. Random numbers are in [0, 1), with one row for each
image. All operations can be differentiated twice, as gradient penalties require. Unlike in the paper, geometric
operations use bilinear sampling without the low-pass filters of the StyleGAN2-ADA and R3GAN code. These filters would
cost more than the small networks of this package.

Shapes: N is the batch size, C is the number of channels (1 or 3), H and W are height and width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from lit_gans.common.precision import full_precision, without_autocast

Images = Float[Tensor, "n c h w"]
NUM_NUMBERS = 31
Pipeline = Literal["bgc", "r3gan"]
_COLOR = {"bgc": 1.0, "r3gan": 0.5}  # probability of color operations relative to all other operations
_SCALE = 0.2  # standard deviation of brightness, and of the log2 of scaling factors
_SHIFT = 1 / 8  # maximum of integer shifts and standard deviation of fractional shifts, relative to the image size


def transformed(
    images: Images, numbers: Float[Tensor, "n 31"], probability: Tensor | float, pipeline: Pipeline = "bgc"
) -> Images:
    """Applies each operation of a pipeline with a probability, independently to each image.

    Args:
        images: images in [-1, 1].
        numbers: random numbers in [0, 1).
        probability: probability of each operation, in [0, 1].
        pipeline: set of operations. `bgc` has blits, geometry and color, the default of StyleGAN2-ADA. `r3gan` adds
            cutout, and halves the probability of each color operation, as in R3GAN's code.
    """
    with without_autocast(images):
        images = full_precision(images)
        columns = iter(numbers.to(images.dtype).unbind(1))
        images = _sample(images, _geometry(columns, probability, *images.shape[-2:]))
        images = _color(images, columns, _COLOR[pipeline] * probability)
        return _cutout(images, columns, probability) if pipeline == "r3gan" else images


def _if(columns: Iterator[Tensor], probability: Tensor | float, value: Tensor, otherwise: float) -> Tensor:
    """Returns `value` for images whose next random number is below a probability, else `otherwise`."""
    return torch.where(next(columns) < probability, value, otherwise)


def _normal(numbers: Tensor) -> Tensor:
    return math.sqrt(2) * torch.erfinv((2 * numbers - 1).clamp(-1 + 1e-6, 1 - 1e-6))


def _matrix(*rows: tuple[Tensor | float, ...]) -> Tensor:
    like = next(entry for row in rows for entry in row if isinstance(entry, Tensor))
    full = [[entry if isinstance(entry, Tensor) else torch.full_like(like, entry) for entry in row] for row in rows]
    return torch.stack([torch.stack(row, -1) for row in full], -2)


def _affine(x: Tensor | float, y: Tensor | float, shift: tuple[Tensor | float, Tensor | float] = (0.0, 0.0)) -> Tensor:
    return _matrix((x, 0.0, shift[0]), (0.0, y, shift[1]), (0.0, 0.0, 1.0))


def _rotation(angle: Tensor) -> Tensor:
    return _matrix((angle.cos(), -angle.sin(), 0.0), (angle.sin(), angle.cos(), 0.0), (0.0, 0.0, 1.0))


def _geometry(
    columns: Iterator[Tensor], probability: Tensor | float, height: int, width: int
) -> Float[Tensor, "n 2 3"]:
    """Returns the affine map from output coordinates to input coordinates, both in [-1, 1].

    The map is composed in units of half the longer side, so that rotations do not distort shapes.
    """
    next_ = columns.__next__
    extent = width / max(height, width), height / max(height, width)  # maximum of x and of y
    matrix = _affine(_if(columns, probability, 1 - 2 * (2 * next_()).floor(), 1.0), 1.0)  # horizontal flip
    matrix = matrix @ _rotation(_if(columns, probability, math.pi / 2 * (4 * next_()).floor(), 0.0))
    shift = [
        ((2 * next_() - 1) * _SHIFT * side).round() * (2 / side) * limit
        for side, limit in zip((width, height), extent, strict=True)
    ]
    applied = next_() < probability
    matrix = matrix @ _affine(1.0, 1.0, (shift[0] * applied, shift[1] * applied))

    scale = _if(columns, probability, torch.exp2(-_SCALE * _normal(next_())), 1.0)
    matrix = matrix @ _affine(scale, scale)
    # one rotation before and one after the anisotropic scaling, so that an image is rotated with `probability` in total
    rotation_probability = 1 - (1 - probability) ** 0.5
    matrix = matrix @ _rotation(_if(columns, rotation_probability, math.pi * (2 * next_() - 1), 0.0))
    stretch = _if(columns, probability, torch.exp2(-_SCALE * _normal(next_())), 1.0)
    matrix = matrix @ _affine(stretch, 1 / stretch)
    matrix = matrix @ _rotation(_if(columns, rotation_probability, math.pi * (2 * next_() - 1), 0.0))
    shift = [2 * _SHIFT * _normal(next_()) * limit for limit in extent]
    applied = next_() < probability
    matrix = matrix @ _affine(1.0, 1.0, (shift[0] * applied, shift[1] * applied))
    if height != width:
        ones = torch.ones_like(shift[0])
        matrix = _affine(ones / extent[0], 1 / extent[1]) @ matrix @ _affine(ones * extent[0], extent[1])
    return matrix[:, :2]


def _color(images: Images, columns: Iterator[Tensor], probability: Tensor | float) -> Images:
    """Changes brightness, contrast, luma, hue and saturation by a single affine map of the colors."""
    next_ = columns.__next__
    shift = _if(columns, probability, _SCALE * _normal(next_()), 0.0)
    contrast = _if(columns, probability, torch.exp2(0.5 * _normal(next_())), 1.0)
    flip = _if(columns, probability, (2 * next_()).floor(), 0.0)
    hue = _if(columns, probability, math.pi * (2 * next_() - 1), 0.0)
    saturation = _if(columns, probability, torch.exp2(_normal(next_())), 1.0)
    images = (images + shift[:, None, None, None]) * contrast[:, None, None, None]
    gray = images.mean(1, keepdim=True)
    color, luma = images - gray, gray * (1 - 2 * flip)[:, None, None, None]
    if images.shape[1] != 3:
        return color + luma
    # rotates colors around the gray axis: the cross product of the axis and a color is orthogonal to both
    across = (color.roll(1, 1) - color.roll(-1, 1)) / math.sqrt(3)
    cosine, sine = (part[:, None, None, None] for part in (hue.cos(), hue.sin()))
    return luma + (cosine * color + sine * across) * saturation[:, None, None, None]


def _cutout(images: Images, columns: Iterator[Tensor], probability: Tensor | float) -> Images:
    """Sets a rectangle of half the height and half the width to 0. Its center is anywhere in the image."""
    applied = next(columns) < probability
    positions = [(torch.arange(size, device=images.device) + 0.5) / size for size in images.shape[-2:]]
    in_rows, in_columns = ((position - next(columns)[:, None]).abs() < 0.25 for position in positions)
    return images * ~(applied[:, None, None] & in_rows[:, :, None] & in_columns[:, None, :])[:, None]


def _sample(images: Images, matrix: Float[Tensor, "n 2 3"]) -> Images:
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    sampled: Tensor = _GridSample.apply(images, grid)
    return sampled


class _GridSample(torch.autograd.Function):
    """Bilinear `grid_sample` with reflection padding that can be differentiated any number of times.

    Sampling is linear in the images, so its backward pass is the transposed linear map. torch before 2.15 cannot
    differentiate the gradient of `grid_sample`.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, grid: Tensor) -> Tensor:
        ctx.save_for_backward(grid)
        ctx.shape = images.shape
        return torch.grid_sampler(images, grid, 0, 2, False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (grid,) = ctx.saved_tensors
        transposed: Tensor = _GridSampleBackward.apply(gradients[0], grid, ctx.shape)
        return transposed, None


class _GridSampleBackward(torch.autograd.Function):
    """Transposed linear map of `_GridSample`, which computes its gradient."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, grid: Tensor, shape: torch.Size) -> Tensor:
        ctx.save_for_backward(grid)
        empty = gradient.new_zeros(1).expand(shape)  # only the shape of this argument matters here
        transposed: Tensor = torch.ops.aten.grid_sampler_2d_backward(gradient, empty, grid, 0, 2, False, (True, False))[
            0
        ]
        return transposed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (grid,) = ctx.saved_tensors
        sampled: Tensor = _GridSample.apply(gradients[0], grid)
        return sampled, None, None
