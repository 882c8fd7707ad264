"""Bottlenecks of autoencoders: a Gaussian for each number of a latent map, or the nearest of a few vectors.

Both map an encoder's output to the latent map that the decoder sees, a loss of each image, and the indices of vectors.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.precision import full_precision, without_autocast

Bottleneck = tuple[Tensor, Tensor, Tensor | None]
_LOG_VARIANCE = (-30.0, 20.0)  # beyond which the exponential is 0 or too large


class DiagonalGaussian(nn.Module):
    """Draws a latent map from Gaussians with the mean and the log variance that an encoder returns.

    Its loss is the KL divergence to the standard normal distribution in nats, summed over the latent map (Kingma and
    Welling 2014, appendix B).
    """

    def forward(
        self, moments: Float[Tensor, "n twice h w"], noise: Float[Tensor, "n z h w"] | None = None
    ) -> Bottleneck:
        """Returns latents (n, z, h, w), the divergence of each image (n,), and None.

        Args:
            moments: means, and behind them log variances.
            noise: standard normal numbers; None returns the means.
        """
        mean, log_variance = full_precision(moments).chunk(2, 1)
        log_variance = log_variance.clamp(*_LOG_VARIANCE)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum((1, 2, 3)) / 2
        latents = mean + 0 if noise is None else mean + (log_variance / 2).exp() * noise
        return latents, divergence, None


class VectorQuantizer(nn.Module):
    """Replaces each vector of a map by the nearest of its own (van den Oord et al. 2017).

    Its loss is that of equation 3, as a mean over the map: the vectors learn from the encoder, and the encoder's output
    from the vectors. Gradients of the latents pass straight through to the encoder's output.

    Args:
        num_codes: number of vectors.
        channels: length of a vector.
        commitment_weight: weight of the second term, beta in equation 3.
    """

    def __init__(self, num_codes: int, channels: int, commitment_weight: float = 0.25) -> None:
        super().__init__()
        self.commitment_weight = commitment_weight
        self.vectors = nn.Parameter(torch.empty(num_codes, channels).uniform_(-1, 1) / num_codes)

    def forward(self, encoded: Float[Tensor, "n z h w"], noise: Tensor | None = None) -> Bottleneck:
        """Returns latents (n, z, h, w), the loss of each image (n,), and the index of each vector (n, h, w)."""
        encoded = full_precision(encoded)
        with without_autocast(encoded):
            codes = self._nearest(encoded.detach().movedim(1, -1))
            chosen = functional.embedding(codes, self.vectors).movedim(-1, 1)
            learned, committed = (chosen - encoded.detach()).square(), (encoded - chosen.detach()).square()
            loss = (learned + self.commitment_weight * committed).mean((1, 2, 3))
            return encoded + (chosen - encoded).detach(), loss, codes

    def _nearest(self, encoded: Float[Tensor, "n h w z"]) -> Int64[Tensor, "n h w"]:
        vectors = self.vectors.detach()
        # the squared distance without the length of what is encoded, which is the same for all
        return (vectors.square().sum(1) - 2 * encoded @ vectors.T).argmin(-1)


def perplexity(usage: Float[Tensor, " k"]) -> Float[Tensor, ""]:
    """Returns how many vectors a quantizer uses: the exponential of the entropy of their frequencies."""
    return torch.special.entr(usage).sum().exp()


def usage_of(codes: Int64[Tensor, "n h w"], num_codes: int) -> Float[Tensor, " k"]:
    """Returns the frequency of each vector in a batch."""
    flat = codes.flatten()
    share = torch.full((len(flat),), 1 / len(flat), device=codes.device)
    return torch.zeros(num_codes, device=codes.device).scatter_add(0, flat, share)
