"""Spectral normalization (Miyato et al. 2018) in float32, with one power iteration per training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision, without_autocast
from lit_gans.networks.blocks import ConditionalBatchNorm2d

_WARM_UP = 15  # number of power iterations before the first use
_LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)


class SpectralNorm(nn.Module):
    """Divides a weight by its largest singular value, estimated by power iteration (section 3.2, algorithm 1).

    In contrast, `torch.nn.utils.parametrizations.spectral_norm` runs a power iteration in every forward pass, so that
    its result depends on the number of microbatches per step. Autocast also computes it in half precision.

    Args:
        weight: initial weight.
        output_axis: output dimension of the weight.

    Attributes:
        remaining: number of remaining power iterations. None means no limit.
    """

    left: Tensor
    right: Tensor
    remaining: int | None = None

    def __init__(self, weight: Tensor, output_axis: int = 0) -> None:
        super().__init__()
        self.output_axis = output_axis
        matrix = self._matrix(weight.detach())
        for name, size in (("left", len(matrix)), ("right", matrix.shape[1])):
            vector = torch.randn(size, dtype=matrix.dtype, device=matrix.device)
            self.register_buffer(name, vector if vector.is_meta else functional.normalize(vector, dim=0))
        for _ in range(_WARM_UP):
            self._iterate(matrix)

    def forward(self, weight: Tensor) -> Tensor:
        with without_autocast(weight):
            matrix = self._matrix(weight)
            if self.training and self.remaining != 0:
                self._iterate(matrix.detach())
                self.remaining = None if self.remaining is None else self.remaining - 1
            # copies the vectors, because a later power iteration must not change tensors that backward needs
            largest = torch.dot(self.left.clone(), matrix @ self.right.clone())
            return (weight / largest).to(weight.dtype)

    def _matrix(self, weight: Tensor) -> Float[Tensor, "rows columns"]:
        return full_precision(weight.movedim(self.output_axis, 0).flatten(1))

    @torch.no_grad()
    def _iterate(self, matrix: Float[Tensor, "rows columns"]) -> None:
        if matrix.is_meta:  # meta tensors have no values, and iterating over them would be slow
            return
        self.left.copy_(functional.normalize(matrix @ self.right, dim=0))
        self.right.copy_(functional.normalize(matrix.T @ self.left, dim=0))


def spectrally_normalized(network: nn.Module) -> nn.Module:
    """Adds spectral norm to every convolution, linear layer and embedding of a network, and returns the network.

    The scales and shifts of batch norm are excluded, even if they are embeddings of classes. Shifts are initialized to
    zero, so they cannot be divided by their spectral norm.

    Raises:
        RefusedInput: if the network already has spectral norm.
    """
    if any(isinstance(layer, SpectralNorm) for layer in network.modules()):
        raise RefusedInput(f"{type(network).__name__} already has spectral norm: do not add it again.")
    norms = (layer for layer in network.modules() if isinstance(layer, ConditionalBatchNorm2d))
    excluded = {table for norm in norms for table in (norm.scale, norm.shift)}
    for layer in list(network.modules()):
        if isinstance(layer, _LAYERS) and layer not in excluded:
            output_axis = 1 if isinstance(layer, nn.ConvTranspose2d) and layer.groups == 1 else 0
            parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight, output_axis))
    return network


@contextmanager
def one_power_iteration(layers: Sequence[SpectralNorm]) -> Iterator[None]:
    """Context manager that limits each layer to one power iteration, in its first forward pass in training mode."""
    for layer in layers:
        layer.remaining = 1
    try:
        yield
    finally:
        for layer in layers:
            layer.remaining = None
