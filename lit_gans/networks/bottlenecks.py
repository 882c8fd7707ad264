"""Layers between the encoder and the decoder of an autoencoder: a Gaussian for each value of the latent map, or one of
three quantizers.

Shapes: N batch, Z latent channels, H and W height and width of the latent map, K number of vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision, without_autocast

_LOG_VARIANCE = (-30.0, 20.0)  # range in which the exponential neither underflows nor is too large
_MARGIN = 1e-3  # relative distance between the highest level and the limit of tanh, as in appendix A.1
_TEMPERATURE = 0.01  # of the softmax over vectors, as in vector-quantize-pytorch
_MOST_BITS = 14
_LEAST = 1e-5  # smallest probability in a logarithm


class Bottleneck(NamedTuple):
    """Output of a bottleneck.

    Attributes:
        latents: latent map (N, Z, H, W).
        loss: loss of each image (N,).
        codes: index of each latent vector (N, H, W); None for `DiagonalGaussian`.
        assignment: mean probability of each vector for each image (N, K); None except for `LookupFreeQuantizer`.
    """

    latents: Tensor
    loss: Tensor
    codes: Tensor | None = None
    assignment: Tensor | None = None


class DiagonalGaussian(nn.Module):
    """Samples a latent map from Gaussians with the mean and the log variance that an encoder returns.

    The loss is the KL divergence to the standard normal distribution in nats, summed over the latent map (Kingma and
    Welling 2014, appendix B).
    """

    def forward(
        self, moments: Float[Tensor, "n twice h w"], noise: Float[Tensor, "n z h w"] | None = None
    ) -> Bottleneck:
        """Returns the latents, and the KL divergence of each image as the loss.

        Args:
            moments: means and log variances, concatenated along the channels.
            noise: standard normal numbers. None returns the means as latents.
        """
        mean, log_variance = full_precision(moments).chunk(2, 1)
        log_variance = log_variance.clamp(*_LOG_VARIANCE)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum((1, 2, 3)) / 2
        latents = mean + 0 if noise is None else mean + (log_variance / 2).exp() * noise
        return Bottleneck(latents, divergence)


class VectorQuantizer(nn.Module):
    """Replaces each vector of a feature map by the nearest learned vector (van den Oord et al. 2017).

    The loss follows equation 3 and is a mean over the map. One term moves the learned vectors towards the encoder's
    output, and the other term moves the encoder's output towards the learned vectors. The gradient of the latents is
    passed unchanged to the encoder's output (straight-through estimator).

    Args:
        num_codes: number of learned vectors.
        channels: length of a vector.
        commitment_weight: weight of the encoder's term, beta in equation 3.
        legacy: whether beta is applied to the vectors' term instead. VQGAN's code had this mistake when its
            published weights were trained.
    """

    def __init__(self, num_codes: int, channels: int, commitment_weight: float = 0.25, legacy: bool = False) -> None:
        super().__init__()
        self.num_codes, self.commitment_weight, self.legacy = num_codes, commitment_weight, legacy
        self.vectors = nn.Parameter(torch.empty(num_codes, channels).uniform_(-1, 1) / num_codes)

    def forward(self, encoded: Float[Tensor, "n z h w"], noise: Tensor | None = None) -> Bottleneck:
        """Returns the quantized latents, their loss, and the index of each vector."""
        encoded = full_precision(encoded)
        with without_autocast(encoded):
            codes = self._nearest(encoded.detach().movedim(1, -1))
            quantized = functional.embedding(codes, self.vectors).movedim(-1, 1)
            vector_term, encoder_term = (quantized - encoded.detach()).square(), (encoded - quantized.detach()).square()
            unweighted, weighted = (encoder_term, vector_term) if self.legacy else (vector_term, encoder_term)
            loss = (unweighted + self.commitment_weight * weighted).mean((1, 2, 3))
            return Bottleneck(straight_through(quantized, encoded), loss, codes)

    def _nearest(self, encoded: Float[Tensor, "n h w z"]) -> Int64[Tensor, "n h w"]:
        vectors = self.vectors.detach()
        # squared distances, without the squared norm of the encoder's output, which is equal for all vectors
        return (vectors.square().sum(1) - 2 * encoded @ vectors.T).argmin(-1)


class FiniteScalarQuantizer(nn.Module):
    """Rounds each value of a feature map to one of a few levels (Mentzer et al. 2023, section 3.1 and appendix A.1).

    Before rounding, a tanh limits the values. There are no parameters, and the loss is 0. The gradient of the rounded
    values is passed unchanged to the limited values. Latents are in [-1, 1].

    Args:
        levels: number of levels of each channel.

    Attributes:
        num_codes: number of different vectors, the product of the levels.
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.num_codes = math.prod(levels)
        place_values = [math.prod(levels[:channel]) for channel in range(len(levels))]
        self.register_buffer("levels", torch.tensor(levels).view(-1, 1, 1), persistent=False)
        # factor of each channel in the index of a vector; the first channel counts ones
        self.register_buffer("place_values", torch.tensor(place_values).view(-1, 1, 1), persistent=False)

    levels: Tensor
    place_values: Tensor

    def forward(self, encoded: Float[Tensor, "n z h w"], noise: Tensor | None = None) -> Bottleneck:
        """Returns the rounded latents, a loss of 0, and the index of each vector."""
        encoded = full_precision(encoded)
        with without_autocast(encoded):
            # the highest level is reached slightly before the limit of tanh; even numbers of levels are shifted by half
            half = (self.levels - 1).to(encoded) * (1 + _MARGIN) / 2
            offset = (1 - self.levels % 2).to(encoded) / 2
            limited = torch.tanh(encoded + torch.atanh(offset / half)) * half - offset
            rounded, largest = limited.round(), self.levels // 2
            codes = ((rounded.detach().long() + largest) * self.place_values).sum(1)
            latents = straight_through(rounded, limited) / largest
        return Bottleneck(latents, latents.new_zeros(len(latents)), codes)


class LookupFreeQuantizer(nn.Module):
    """Replaces each value of a feature map by its sign (Yu et al. 2023, section 3.1).

    The loss of an image is the mean squared distance of the encoder's output from the signs, plus the entropy of the
    probabilities of the vectors at each position (first term of equation 5). The second term, the entropy of the mean
    probabilities, depends on all images of all processes. `entropy_of_mean` computes it from the assignment.
    Probabilities decrease with the squared distance from a vector, divided by the temperature 0.01.

    Args:
        channels: length of a vector. There are 2 ** channels vectors.
        commitment_weight: weight of the squared distance.
        entropy_weight: weight of the entropies.

    Raises:
        RefusedInput: if there are more than 2 ** 14 vectors, whose probabilities take too much memory.
    """

    def __init__(self, channels: int, commitment_weight: float = 0.25, entropy_weight: float = 0.1) -> None:
        super().__init__()
        if channels > _MOST_BITS:
            raise RefusedInput(
                f"latent_channels={channels}: quantizer=lfq has 2 ** latent_channels vectors, and supports at most"
                f" {_MOST_BITS} channels."
            )
        self.commitment_weight, self.entropy_weight, self.num_codes = commitment_weight, entropy_weight, 2**channels
        bits = torch.arange(self.num_codes)[:, None] >> torch.arange(channels) & 1
        self.register_buffer("vectors", bits * 2.0 - 1, persistent=False)

    vectors: Float[Tensor, "k z"]

    def forward(self, encoded: Float[Tensor, "n z h w"], noise: Tensor | None = None) -> Bottleneck:
        """Returns the signs, the loss of each image, the index of each vector, and the assignment."""
        encoded = full_precision(encoded)
        with without_autocast(encoded):
            positive = encoded.detach() > 0
            signs = torch.where(positive, 1.0, -1.0).to(encoded)
            place_values = 2 ** torch.arange(encoded.shape[1], device=encoded.device).view(-1, 1, 1)
            codes = (positive * place_values).sum(1)
            loss = self.commitment_weight * (encoded - signs).square().mean((1, 2, 3))
            assignment = None
            if self.training and self.entropy_weight:
                probabilities = self._probabilities(encoded)
                loss = loss + self.entropy_weight * _entropy(probabilities).mean(1)
                assignment = probabilities.mean(1)
            return Bottleneck(straight_through(signs, encoded), loss, codes, assignment)

    def _probabilities(self, encoded: Float[Tensor, "n z h w"]) -> Float[Tensor, "n p k"]:
        """Returns the probability of each vector at each position."""
        # squared distances, without the terms that are equal for all vectors
        return (2 / _TEMPERATURE * encoded.flatten(2).transpose(1, 2) @ self.vectors.to(encoded).T).softmax(-1)


def entropy_of_mean(assignment: Float[Tensor, "n k"], mean_over_ranks: Callable[[Tensor], Tensor]) -> Float[Tensor, ""]:
    """Returns the entropy of the mean probabilities over the images of all ranks (Yu et al. 2023, equation 5).

    The mean of its gradients over all ranks is the gradient that a single process computes for all images.

    Args:
        assignment: probability of each vector for each image of this rank.
        mean_over_ranks: function that returns the mean of a tensor over all ranks, without a graph.
    """
    local = assignment.mean(0)
    return _entropy(mean_over_ranks(local.detach()) + (local - local.detach()))


def _entropy(probabilities: Float[Tensor, "*n k"]) -> Float[Tensor, "*n"]:
    return -(probabilities * probabilities.clamp(min=_LEAST).log()).sum(-1)


def straight_through(quantized: Float[Tensor, "*shape"], values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Returns quantized values whose gradient is passed to `values` (Bengio et al. 2013)."""
    return values + (quantized - values).detach()


def perplexity(usage: Float[Tensor, " k"]) -> Float[Tensor, ""]:
    """Computes the effective number of used vectors, the exponential of the entropy of their frequencies."""
    return torch.special.entr(usage).sum().exp()


def usage_of(codes: Int64[Tensor, "n h w"], num_codes: int) -> Float[Tensor, " k"]:
    """Returns the relative frequency of each vector in a batch."""
    flat = codes.flatten()
    weights = torch.full((len(flat),), 1 / len(flat), device=codes.device)
    return torch.zeros(num_codes, device=codes.device).scatter_add(0, flat, weights)
