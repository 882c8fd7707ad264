"""Spectral normalization (Miyato et al. 2018) in float32, with one power iteration per training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import ParametrizationList

from lit_gans.common._compat.torch import copy_all, norm_all
from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision, without_autocast
from lit_gans.networks.blocks import ConditionalBatchNorm2d

_WARM_UP = 15  # number of power iterations before the first use
_LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)


class _Estimate(NamedTuple):
    """Estimate of a weight's largest singular value, with the singular vectors from which it was computed."""

    left: Float[Tensor, " rows"]
    right: Float[Tensor, " columns"]
    sigma: Float[Tensor, ""]


class SpectralNorm(nn.Module):
    """Divides a weight by its largest singular value, estimated by power iteration (section 3.2, algorithm 1).

    In contrast, `torch.nn.utils.parametrizations.spectral_norm` runs a power iteration in every forward pass. Its
    result therefore depends on the number of microbatches per step. Under autocast, it also computes in half precision.

    Args:
        weight: initial weight.
        output_axis: output dimension of the weight.

    Attributes:
        in_step: whether the layer runs a single power iteration, see `one_power_iteration`.
        estimate: result of this power iteration. None before the iteration and outside of a step.
    """

    left: Tensor
    right: Tensor
    in_step: bool = False
    estimate: _Estimate | None = None

    def __init__(self, weight: Tensor, output_axis: int = 0) -> None:
        super().__init__()
        self.output_axis = output_axis
        matrix = self.matrix(weight)
        for name, size in (("left", len(matrix)), ("right", matrix.shape[1])):
            vector = torch.randn(size, dtype=matrix.dtype, device=matrix.device)
            self.register_buffer(name, vector if vector.is_meta else functional.normalize(vector, dim=0))
        for _ in range(_WARM_UP):
            _iterate([(self, weight)])

    def forward(self, weight: Tensor) -> Tensor:
        with without_autocast(weight):
            left, right, sigma = self._current_estimate(weight)
            normalized: Tensor = _Quotient.apply(full_precision(weight), left, right, sigma, self.output_axis)  # type: ignore[no-untyped-call]
            return normalized.to(weight.dtype)

    def matrix(self, weight: Tensor) -> Float[Tensor, "rows columns"]:
        """Returns a weight as a matrix with one row per output, without its graph."""
        return full_precision(weight.detach().movedim(self.output_axis, 0).flatten(1))

    @torch.no_grad()
    def _current_estimate(self, weight: Tensor) -> _Estimate:
        if self.in_step and self.estimate is not None:
            return self.estimate
        if self.training:
            (estimate,) = _iterate([(self, weight)])
            self.estimate = estimate if self.in_step else None
            return estimate
        # copies the vectors, because a later power iteration must not change tensors that backward needs
        left, right = self.left.clone(), self.right.clone()
        return _Estimate(left, right, torch.dot(left, self.matrix(weight) @ right))


class _Quotient(torch.autograd.Function):
    """Quotient of a weight and its largest singular value, differentiated with fixed singular vectors.

    The gradient is the gradient through `weight / (left @ weight @ right)`. This gradient needs no graph of the
    singular value. All forward passes of a step can therefore share one estimate.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, left: Tensor, right: Tensor, sigma: Tensor, output_axis: int) -> Tensor:
        normalized = weight / sigma
        ctx.save_for_backward(normalized, left, right, sigma)
        ctx.output_axis = output_axis
        return normalized

    @staticmethod
    @once_differentiable  # a second derivative with respect to the weight would need the graph of the singular value
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        normalized, left, right, sigma = ctx.saved_tensors
        shape = normalized.movedim(ctx.output_axis, 0).shape
        of_sigma = torch.outer(left, right).view(shape).movedim(0, ctx.output_axis)
        # flattens both tensors in the memory order of `normalized`, so that `flatten` does not copy it
        order = sorted(range(normalized.dim()), key=normalized.stride, reverse=True)
        share = torch.dot(gradient.permute(order).flatten(), normalized.permute(order).flatten())
        return torch.addcmul(gradient, of_sigma, share, value=-1) / sigma, None, None, None, None


@torch.no_grad()
def _iterate(layers: Sequence[tuple[SpectralNorm, Tensor]]) -> list[_Estimate]:
    """Runs one power iteration for each layer and its weight, and updates the vectors of the layers.

    All layers are normalized together, because each small operation costs as much time on a GPU as a large one.
    """
    norms, weights = zip(*layers, strict=True)
    if weights[0].is_meta:  # meta tensors have no values, and iterating over them would be slow
        return [_Estimate(norm.left, norm.right, norm.left.new_empty(())) for norm in norms]
    matrices = [norm.matrix(weight) for norm, weight in layers]
    left, _ = _normalized([matrix @ norm.right for norm, matrix in zip(norms, matrices, strict=True)])
    # with u = Wv / |Wv| and v' = W'u / |W'u|, the estimate u'Wv' is |W'u|
    right, sigmas = _normalized([matrix.T @ vector for matrix, vector in zip(matrices, left, strict=True)])
    copy_all([*(norm.left for norm in norms), *(norm.right for norm in norms)], [*left, *right])
    return [_Estimate(*values) for values in zip(left, right, sigmas, strict=True)]


def _normalized(vectors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Returns the vectors divided by their norms, and the norms."""
    sizes = [len(vector) for vector in vectors]
    norms = norm_all(vectors)
    divisors = torch.cat([norm.expand(size) for norm, size in zip(norms, sizes, strict=True)])
    return (torch.cat([*vectors]) / divisors).split(sizes), norms


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


def spectral_layers(network: nn.Module) -> list[ParametrizationList]:
    """Returns the parametrizations of a network that apply spectral norm. Each one holds the `original` weight."""
    lists = (layer for layer in network.modules() if isinstance(layer, ParametrizationList))
    return [layer for layer in lists if isinstance(layer[0], SpectralNorm)]


def _norm_of(layer: ParametrizationList) -> SpectralNorm:
    norm = layer[0]
    assert isinstance(norm, SpectralNorm), type(norm)
    return norm


def _is_complete(layer: ParametrizationList) -> bool:
    """Returns whether this rank holds the full weight.

    Under FSDP and ZeRO stage 3, it does so only in forward passes.
    """
    from torch.distributed.tensor import DTensor  # imported here, because the import is slow

    num = len(_norm_of(layer).left) * len(_norm_of(layer).right)
    return not isinstance(layer.original, DTensor) and layer.original.numel() == num


@contextmanager
def one_power_iteration(
    layers: Sequence[ParametrizationList], used: Sequence[ParametrizationList] = ()
) -> Iterator[None]:
    """Context manager that limits each layer to one power iteration, whose estimate all its forward passes share.

    Layers run their iteration in their first forward pass in training mode.

    Args:
        layers: results of `spectral_layers`.
        used: layers that the forward passes will use. If they are in training mode, their iterations run together when
            the context is entered. Sharded weights are excluded, because they are complete only within a forward pass.
    """
    norms = [_norm_of(layer) for layer in layers]
    pairs = [(_norm_of(layer), layer.original) for layer in used if layer.training and _is_complete(layer)]
    try:
        for norm in norms:
            norm.in_step = True
        if pairs:
            for (norm, _), estimate in zip(pairs, _iterate(pairs), strict=True):
                norm.estimate = estimate
        yield
    finally:
        for norm in norms:
            norm.in_step, norm.estimate = False, None
