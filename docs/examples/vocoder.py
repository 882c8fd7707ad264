"""Turns spectrograms of a synthesized voice into waves, with an L1 loss alone or with discriminators beside it.

    python docs/examples/vocoder.py            # L1 of spectrograms and an adversary
    python docs/examples/vocoder.py --weight 0 # L1 of spectrograms alone

A spectrogram has no phase. The L1 loss accepts any phase, but a listener hears a wrong phase as a rough voice. Prints
two scores of held-out waves that no loss contains, and writes spectrograms of a predicted and a true wave to a file.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn.functional import gelu, interpolate, l1_loss

from lit_gans import Adversary
from lit_gans.networks.multi_period import MultiPeriod

RATE = 8000  # samples per second
SAMPLES = 4096  # samples of a wave
WINDOW, HOP, BANDS = 64, 16, 12


def contour(num, low, high, points=6):
    """Returns smooth random curves (num, SAMPLES) between `low` and `high`."""
    return (
        low + (high - low) * interpolate(torch.rand(num, 1, points), SAMPLES, mode="linear", align_corners=True)[:, 0]
    )


def voices(num):
    """Returns waves (num, 1, SAMPLES) of a voice, the number of periods until each sample, and where it is voiced."""
    pitch = contour(num, 0.85, 1.15, points=4) * (100 + 100 * torch.rand(num, 1))
    cycles = pitch.cumsum(-1) / RATE + torch.rand(num, 1)
    ranges = ((300, 800, 80), (900, 2000, 120), (2300, 3000, 160))
    formants = [(contour(num, low, high), width) for low, high, width in ranges]
    wave = torch.zeros(num, SAMPLES)
    for harmonic in range(1, 41):
        frequency = harmonic * pitch
        gain = sum(1 / (1 + ((frequency - center) / width) ** 2) for center, width in formants)
        wave += gain * (frequency < 3800) * torch.cos(2 * torch.pi * harmonic * cycles)
    voiced = (contour(num, -1, 2, points=9) * 8).sigmoid()
    noise = torch.randn(num, SAMPLES).diff(dim=-1, prepend=torch.zeros(num, 1))  # mostly high frequencies
    loudness = contour(num, 0.3, 1)
    return 0.4 * (loudness * (voiced * wave + 0.3 * (1 - voiced) * noise))[:, None], cycles, voiced > 0.9


def stft(waves, window, hop):
    """Returns the magnitudes (n, frequencies, frames) of waves (n, 1, samples)."""
    return torch.stft(waves[:, 0], window, hop, window=torch.hann_window(window), return_complex=True).abs()


def bands(waves):
    """Returns the logarithm of the magnitudes in mel bands, (n, BANDS, frames)."""
    mel = torch.linspace(0, 2595 * torch.tensor(1 + RATE / 2 / 700).log10(), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    frequencies = torch.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising, falling = frequencies - edges[:-2, None], edges[2:, None] - frequencies
    widths = edges.diff()[:, None]
    filters = torch.minimum(rising / widths[:-1], falling / widths[1:]).clamp(min=0)
    return (filters @ stft(waves, WINDOW, HOP)).clamp(min=1e-2).log()


class Block(nn.Module):
    """A residual block with a depthwise convolution, as in ConvNeXt."""

    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.expand, self.project = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(3 * width, width, 1)

    def forward(self, hidden):
        return hidden + self.project(gelu(self.expand(self.norm(self.depthwise(hidden)))))


class Vocoder(nn.Module):
    """Predicts the samples around each frame, and adds overlapping frames to a wave."""

    def __init__(self, width=64, blocks=4):
        super().__init__()
        layers = [nn.Conv1d(BANDS, width, 7, padding=3), *(Block(width) for _ in range(blocks))]
        self.layers = nn.Sequential(*layers, nn.Conv1d(width, 2 * width, 1), nn.GELU())
        self.frames = nn.ConvTranspose1d(2 * width, 1, 2 * HOP, HOP, HOP)

    def forward(self, spectrograms):
        return 0.2 * self.frames(self.layers(spectrograms))  # the loudness of the voice


def periodicity(waves, cycles, voiced):
    """Returns the correlation in [-1, 1] of each voiced period of waves with the next period, on 64 points each."""
    values, samples = [], np.arange(SAMPLES)
    for wave, cycle, on in zip(waves[:, 0].numpy(), cycles.numpy(), voiced.numpy(), strict=True):
        points = np.arange(64 * np.ceil(cycle[0]), 64 * np.floor(cycle[-1])) / 64
        times = np.interp(points, cycle, samples)
        periods = np.interp(times, samples, wave).reshape(-1, 64)
        on = (np.interp(times, samples, on) == 1).reshape(-1, 64).all(1)
        periods = torch.from_numpy(periods - periods.mean(1, keepdims=True))
        values.append(torch.cosine_similarity(periods[:-1], periods[1:])[on[:-1] & on[1:]])
    return torch.cat(values)


def spectral_distance(output, waves):
    """Returns the mean distance of log magnitudes in dB, with a window that no loss uses."""
    return 20 * l1_loss(*(stft(x, 400, 100).clamp(min=1e-2).log10() for x in (output, waves)))


def train(weight, steps):
    """Trains the vocoder on 512 waves, without the adversary if its weight is 0, and returns it."""
    waves = voices(512)[0]
    network = Vocoder()
    # losses and weights of Kong et al. 2020 (HiFi-GAN), whose discriminators have 30 layers to match instead of 6
    adversary = Adversary(MultiPeriod(width=2), "least_squares", weight=weight, feature_matching=60 * weight)
    optimizer, for_adversary = (
        torch.optim.AdamW(part.parameters(), 2e-3, (0.8, 0.99)) for part in (network, adversary)
    )
    for _ in range(steps):
        batch = waves[torch.randint(len(waves), (4,))]
        spectrograms = bands(batch)
        output = network(spectrograms)
        loss = 15 * l1_loss(bands(output), spectrograms)
        if weight:
            loss = loss + adversary.loss(output, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if weight:
            adversary.step(batch, output, for_adversary)
    return network


def main(weight, steps, seed, output):
    """Trains, prints the scores of 32 held-out waves, and writes the spectrograms of one of them."""
    torch.manual_seed(seed)
    waves, cycles, voiced = voices(32)
    network = train(weight, steps)
    with torch.no_grad():
        made = network(bands(waves))
    print(f"periodicity {periodicity(made, cycles, voiced).mean():.3f}, decibels {spectral_distance(made, waves):.2f}")
    levels = [20 * stft(x[:1], 512, 16)[0].clamp(min=1e-2).log10().numpy() for x in (made, waves)]
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharey=True, layout="constrained")
    for axis, level, title in zip(axes, levels, ("predicted", "true"), strict=True):
        axis.imshow(level, origin="lower", aspect="auto", extent=(0, SAMPLES / RATE, 0, RATE / 2), vmin=-40, vmax=35)
        axis.set(title=title, xlabel="seconds", ylabel="hertz")
    figure.savefig(output, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weight", type=float, default=1.0, help="weight of the adversarial loss; 0 trains without it")
    parser.add_argument("--steps", type=int, default=2000, help="number of training iterations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the waves and of the weights")
    parser.add_argument("--output", default="vocoder.png", help="path of the PNG file")
    main(**vars(parser.parse_args()))
