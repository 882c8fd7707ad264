"""Modules that `lit-gans bench strategies` trains besides our GANs: a vocoder and an autoencoder."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import l1_loss, leaky_relu, relu

_MELS, _HOP = 20, 16  # bins of a spectrogram, and samples of a frame
_CODES = 4  # channels between encoder and decoder

STARTS_AT = 1  # the iteration from which the autoencoder has its discriminator


class Shape(LightningModule):
    """Two optimizers and manual optimization; knows nothing of this package.

    Args:
        width: channels of the layers.
        size: height and width of the images, and number of frames of the spectrograms.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.size = size

    def examples(self, num: int) -> tuple[Tensor, ...]:
        """Returns a batch of random examples."""
        raise NotImplementedError

    def update(self, optimizer: Any, loss: Tensor) -> None:
        """Steps an optimizer, which must be toggled, with the gradients of a loss."""
        self.manual_backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        self.untoggle_optimizer(optimizer)


class _Waves(nn.Module):
    """Scores waveforms folded into rows of `period` samples, and returns the features of its layers."""

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        channels = (1, width, 2 * width, 1)
        layers = (nn.Conv2d(*pair, (5, 1), (3, 1), (2, 0)) for pair in pairwise(channels))
        self.layers = nn.ModuleList(layers)

    def forward(self, audio: Tensor) -> list[Tensor]:
        hidden = audio[:, : audio.shape[1] // self.period * self.period].view(len(audio), 1, -1, self.period)
        features: list[Tensor] = []
        for layer in self.layers:
            hidden = layer(leaky_relu(hidden, 0.1) if features else hidden)
            features.append(hidden)
        return features


class Vocoder(Shape):
    """Waveforms of spectrograms; one optimizer steps two kinds of discriminators, whose features are matched."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__(width, size)
        self.backbone = nn.Sequential(nn.Conv1d(_MELS, 4 * width, 7, 1, 3), nn.GELU())
        self.head = nn.ConvTranspose1d(4 * width, 1, _HOP, _HOP)
        self.periods = nn.ModuleList(_Waves(period, width) for period in (2, 3))
        self.scales = nn.ModuleList(_Waves(1, width) for _ in range(2))

    def forward(self, mels: Tensor) -> Tensor:
        """Returns waveforms, (N, frames * hop)."""
        return torch.tanh(self.head(self.backbone(mels))).squeeze(1)

    def _features(self, audio: Tensor) -> list[list[Tensor]]:
        folded = [network(audio) for network in self.periods]
        return folded + [network(audio[:, :: 2**index]) for index, network in enumerate(self.scales)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        audio, mels = batch
        for_discriminators, for_generator = self.optimizers()  # type: ignore[attr-defined]

        self.toggle_optimizer(for_discriminators)
        with torch.no_grad():
            generated = self(mels)
        scores = [(real[-1], fake[-1]) for real, fake in self._pairs(audio, generated)]
        loss = torch.stack([relu(1 - real).mean() + relu(1 + fake).mean() for real, fake in scores]).sum()
        self.update(for_discriminators, loss)

        self.toggle_optimizer(for_generator)
        generated = self(mels)
        loss = l1_loss(generated, audio)
        for real, fake in self._pairs(audio, generated):
            matched = [l1_loss(one, other.detach()) for one, other in zip(fake[:-1], real[:-1], strict=True)]
            loss = loss + relu(1 - fake[-1]).mean() + torch.stack(matched).sum()
        self.update(for_generator, loss)

    def _pairs(self, audio: Tensor, generated: Tensor) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
        return zip(self._features(audio), self._features(generated), strict=True)

    def configure_optimizers(self) -> Any:
        return _adam(self.periods, self.scales), _adam(self.backbone, self.head)

    def examples(self, num: int) -> tuple[Tensor, ...]:
        return torch.rand(num, self.size * _HOP) * 2 - 1, torch.rand(num, _MELS, self.size)


class _Loss(nn.Module):
    """A frozen perceptual network, and a discriminator that another optimizer steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.perceptual = nn.Conv2d(3, width, 3).requires_grad_(False)
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2)
        )
        self.discriminator.append(nn.Conv2d(2 * width, 1, 3, 1, 1))

    def forward(self, images: Tensor, reconstructions: Tensor) -> Tensor:
        return l1_loss(reconstructions, images) + l1_loss(self.perceptual(reconstructions), self.perceptual(images))


class Autoencoder(Shape):
    """Encoder and decoder in one optimizer; the loss has a discriminator, which starts at iteration `STARTS_AT`."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__(width, size)
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.SiLU(), nn.Conv2d(width, _CODES, 3, 1, 1))
        self.decoder = nn.Sequential(
            nn.Conv2d(_CODES, 2 * width, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(2 * width, 3, 4, 2, 1)
        )
        self.loss = _Loss(width)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        (images,) = batch
        for_autoencoder, for_discriminator = self.optimizers()  # type: ignore[attr-defined]
        discriminator, adversarial = self.loss.discriminator, batch_idx >= STARTS_AT

        self.toggle_optimizer(for_autoencoder)
        reconstructions = self.decoder(self.encoder(images))
        loss = self.loss(images, reconstructions)
        self.update(for_autoencoder, loss - 0.1 * discriminator(reconstructions).mean() if adversarial else loss)
        if adversarial:
            self.toggle_optimizer(for_discriminator)
            real, fake = discriminator(images), discriminator(reconstructions.detach())
            self.update(for_discriminator, relu(1 - real).mean() + relu(1 + fake).mean())

    def configure_optimizers(self) -> Any:
        return _adam(self.encoder, self.decoder), _adam(self.loss.discriminator)

    def examples(self, num: int) -> tuple[Tensor, ...]:
        return (torch.rand(num, 3, self.size, self.size) * 2 - 1,)


def _adam(*networks: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(chain.from_iterable(network.parameters() for network in networks), 1e-3)


SHAPES: dict[str, type[Shape]] = {"vocoder": Vocoder, "autoencoder": Autoencoder}
