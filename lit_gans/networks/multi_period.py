"""Multi-period discriminator of waveforms: Kong, Kim and Bae 2020, "HiFi-GAN: Generative Adversarial Networks for
Efficient and High Fidelity Speech Synthesis".
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from lit_gans.networks.features import WithFeatures

_WIDTHS = 1, 4, 16, 32, 32  # channels of the layers, in units of `width`
_SLOPE = 0.1  # slope of the leaky ReLU


class MultiPeriod(nn.Module):
    """Returns the scores and features of one discriminator for each period (section 2.3).

    The discriminator of period p reshapes a waveform to an image of width p, and its convolutions are one pixel wide.
    Each convolution thus combines samples at a distance of p. All layers have weight norm. The features are the outputs
    of all layers.

    Args:
        periods: periods, in samples.
        width: number of channels of the first layer, 32 in the authors' code. The last layers have 32 times as many
            channels.

    Examples:
        >>> import torch
        >>> outputs = MultiPeriod(periods=(2, 3), width=2)(torch.zeros(1, 1, 1000))
        >>> [tuple(output.scores.shape) for output in outputs]
        [(1, 14), (1, 15)]
    """

    def __init__(self, periods: Sequence[int] = (2, 3, 5, 7, 11), width: int = 32) -> None:
        super().__init__()
        self.discriminators = nn.ModuleList(_OnePeriod(period, width) for period in periods)

    def forward(self, waves: Float[Tensor, "n 1 samples"]) -> list[WithFeatures]:
        return [discriminator(waves) for discriminator in self.discriminators]


class _OnePeriod(nn.Module):
    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        widths = [1, *(width * factor for factor in _WIDTHS)]
        strides = [3] * (len(_WIDTHS) - 1) + [1]
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(before, after, (5, 1), (stride, 1), (2, 0)))
            for before, after, stride in zip(widths, widths[1:], strides, strict=False)
        )
        self.last = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, waves: Float[Tensor, "n 1 samples"]) -> WithFeatures:
        missing = -waves.shape[-1] % self.period
        hidden = functional.pad(waves, (0, missing), "reflect").unflatten(-1, (-1, self.period))
        features = []
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), _SLOPE)
            features.append(hidden)
        scores = self.last(hidden)
        return WithFeatures(scores.flatten(1), [*features, scores])
