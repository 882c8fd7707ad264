"""Fully connected networks (Goodfellow et al. 2014) for images and points.

A point in the plane is an image with 2 channels and one pixel.

Shapes: N is the batch size, Z the latent size, C the number of image channels, H and W are height and width.
"""

from __future__ import annotations

import math
from itertools import pairwise

from jaxtyping import Float, Int64
from torch import Tensor, cat, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, sides
from lit_gans.networks.blocks import Norm, ScoreHead, class_embedding


class MLPGenerator(nn.Module):
    """Maps latents (N, Z) to images (N, C, H, W) in [-1, 1], or to unbounded points (N, C, 1, 1) if H and W are 1.

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W.
        width: number of units per hidden layer.
        depth: number of hidden layers.
        num_classes: number of classes; 0 for an unconditional network. With classes, an embedding of size Z is
            concatenated with the latents.
    """

    def __init__(
        self,
        latent_dim: int,
        channels: int,
        image_size: Size,
        width: int = 128,
        depth: int = 2,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        self.embedding = class_embedding(num_classes, latent_dim) if num_classes else None
        sizes = [latent_dim * (2 if num_classes else 1)] + [width] * depth
        layers: list[nn.Module] = []
        for size_in, size_out in pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU(inplace=True)]
        shape = (channels, *sides(image_size))
        layers += [nn.Linear(sizes[-1], math.prod(shape)), nn.Unflatten(1, shape)]
        self.layers = nn.Sequential(*layers, nn.Identity() if image_size == 1 else nn.Tanh())

    def forward(
        self, latents: Float[Tensor, "n z"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        if self.embedding is not None:
            latents = cat([latents, self.embedding(labels)], 1)
        return self.layers(latents)


class MLPDiscriminator(nn.Module):
    """Maps images or points (N, C, H, W) to logits (N,).

    Args:
        channels: C.
        image_size: H and W.
        width: number of units per hidden layer.
        depth: number of hidden layers.
        norm: type of normalization after each hidden layer, `none` or `layer`.
        num_classes: number of classes; 0 for an unconditional network. With classes, the logits include a projection of
            the last hidden layer onto the class embedding.

    Raises:
        RefusedInput: if `norm` has any other value.
    """

    @converts_arguments
    def __init__(
        self,
        channels: int,
        image_size: Size,
        width: int = 128,
        depth: int = 2,
        norm: Norm = "none",
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        if norm not in ("none", "layer"):
            raise RefusedInput(f"norm={norm}: the mlp networks only support norm=none and norm=layer.")
        layers: list[nn.Module] = [nn.Flatten()]
        sizes = [math.prod((channels, *sides(image_size)))] + [width] * depth
        for size_in, size_out in pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.LayerNorm(size_out) if norm == "layer" else nn.Identity()]
            layers += [nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.head = ScoreHead(sizes[-1], num_classes)

    def forward(
        self, images: Float[Tensor, "n c h w"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        return self.head(self.layers(images), labels)
