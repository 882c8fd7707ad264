"""Denoises small volumes of two tissues, with a squared error alone or with a 3-D discriminator beside it.

    python docs/examples/volumes.py            # squared error and an adversary
    python docs/examples/volumes.py --weight 0 # squared error alone

The squared error averages all volumes that fit a noisy volume, which blurs the border between the tissues. Prints two
scores of held-out volumes, and writes a slice of eight noisy, denoised and true volumes to a PNG file.
"""

import argparse

import torch
from lightning.pytorch import seed_everything
from torch import nn
from torch.nn.functional import mse_loss, relu
from torchmetrics.functional.image import peak_signal_noise_ratio
from torchvision.utils import save_image

from lit_gans import Adversary
from lit_gans.networks.patchgan import PatchGAN

SIDE = 24  # voxels


def tissues(num, radius=2.5):
    """Returns volumes (num, 1, SIDE, SIDE, SIDE) of the values -1 and 1: the sign of Gaussian-filtered noise.

    Args:
        num: number of volumes.
        radius: standard deviation of the Gaussian filter, in voxels.
    """
    axes = torch.meshgrid(*[torch.fft.fftfreq(SIDE)] * 2, torch.fft.rfftfreq(SIDE), indexing="ij")
    lowpass = torch.exp(-2 * (torch.pi * radius) ** 2 * sum(axis**2 for axis in axes))
    spectrum = torch.fft.rfftn(torch.randn(num, 1, SIDE, SIDE, SIDE), dim=(2, 3, 4))
    return torch.fft.irfftn(spectrum * lowpass, dim=(2, 3, 4)).sign()


def with_noise(volumes):
    """Returns volumes with Gaussian noise, whose variance is 9 times the variance of the volumes."""
    return volumes + 3 * torch.randn_like(volumes)


class Denoiser(nn.Module):
    """Maps noisy volumes (N, 1, SIDE, SIDE, SIDE) to volumes in (-1, 1). Computes at half the resolution."""

    def __init__(self, width=16, blocks=3):
        super().__init__()
        self.encode = nn.Conv3d(1, width, 4, 2, 1)
        self.blocks = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(blocks))
        self.decode = nn.ConvTranspose3d(width, 1, 4, 2, 1)

    def forward(self, noisy):
        hidden = self.encode(noisy)
        for block in self.blocks:
            hidden = hidden + block(relu(hidden))
        return self.decode(relu(hidden)).tanh()


def gradient_magnitudes(volumes):
    """Returns the magnitudes of the gradients of all voxels, sorted."""
    return torch.stack(torch.gradient(volumes, dim=(2, 3, 4))).norm(dim=0).flatten().sort().values


def scores(output, volumes):
    """Returns the PSNR, and the Wasserstein-1 distance of the distributions of gradient magnitudes.

    The distance shows whether borders are as sharp and as frequent as in true volumes. No loss contains it.
    """
    distance = (gradient_magnitudes(output) - gradient_magnitudes(volumes)).abs().mean()
    return {"psnr": peak_signal_noise_ratio(output, volumes, data_range=2.0).item(), "gradients": distance.item()}


def train(weight, steps):
    """Returns a denoiser that is trained with the squared error, and with an adversary unless its weight is 0."""
    network = Denoiser()
    adversary = Adversary(PatchGAN(0, 1, SIDE, width=16, depth=2, norm="none", dims=3), "hinge", weight=weight)
    for_network = torch.optim.Adam(network.parameters(), 2e-3, (0.5, 0.9))
    for_adversary = torch.optim.Adam(adversary.parameters(), 1e-3, (0.5, 0.9))
    for _ in range(steps):
        volumes = tissues(4)
        output = network(with_noise(volumes))
        loss = mse_loss(output, volumes)
        if weight:
            loss = loss + adversary.loss(output)
        loss.backward()
        for_network.step()
        for_network.zero_grad()
        if weight:
            adversary.step(volumes, output, for_adversary)
    return network


def main(weight, steps, seed, output):
    """Trains, prints the scores of 32 held-out volumes, and writes the image."""
    seed_everything(seed, verbose=False)
    volumes = tissues(32)
    noisy = with_noise(volumes)
    network = train(weight, steps)
    with torch.no_grad():
        denoised = network(noisy)
    print(", ".join(f"{name} {value:.3f}" for name, value in scores(denoised, volumes).items()))
    slices = torch.cat([x[:8, :, SIDE // 2] for x in (noisy / 3, denoised, volumes)]) / 2 + 0.5
    enlarged = slices.clamp(0, 1).repeat_interleave(3, 2).repeat_interleave(3, 3)
    save_image(enlarged, output, nrow=8, padding=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weight", type=float, default=0.2, help="weight of the adversarial loss; 0 trains without it")
    parser.add_argument("--steps", type=int, default=400, help="number of training iterations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the volumes and of the weights")
    parser.add_argument("--output", default="volumes.png", help="path of the PNG file")
    main(**vars(parser.parse_args()))
