"""Compresses cartoon faces of 32x32 pixels to 128 numbers, with an L1 loss alone or with a discriminator beside it.

    python docs/examples/autoencoder.py            # L1 loss and an adversary
    python docs/examples/autoencoder.py --weight 0 # L1 loss alone

The L1 loss alone blurs what the latents do not contain. Prints two scores of held-out faces, and writes eight
reconstructed and true faces to a PNG file. Needs the extra `avatars`; the first run draws the faces.
"""

import argparse

import torch
from lightning.pytorch import seed_everything
from torch import nn
from torch.nn.functional import interpolate, l1_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchmetrics.functional.image import peak_signal_noise_ratio
from torchvision.utils import save_image

from lit_gans import Adversary
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.avatars import AvatarsExtractor
from lit_gans.networks.patchgan import PatchGAN

SIDE = 32


def halving(channels, width):
    """Returns layers that halve the height and width of a feature map."""
    return nn.Conv2d(channels, width, 4, 2, 1), nn.SiLU()


def doubling(channels, width):
    """Returns layers that double the height and width of a feature map."""
    first, second = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
    return nn.Upsample(scale_factor=2), first, nn.SiLU(), second, nn.SiLU()


class Autoencoder(nn.Module):
    """Maps images (N, 3, 32, 32) in [-1, 1] to latents (N, 8, 4, 4), and these to images."""

    def __init__(self, width=32, latent_channels=8):
        super().__init__()
        down = [*halving(3, width), *halving(width, 2 * width), *halving(2 * width, 4 * width)]
        up = [*doubling(4 * width, 2 * width), *doubling(2 * width, width), *doubling(width, width)]
        self.encoder = nn.Sequential(*down, nn.Conv2d(4 * width, latent_channels, 3, padding=1))
        first = nn.Conv2d(latent_channels, 4 * width, 3, padding=1)
        self.decoder = nn.Sequential(first, nn.SiLU(), *up, nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, images):
        return self.decoder(self.encoder(images))


def scores(output, faces):
    """Returns the PSNR, and the FID on features of a network that reads the attributes of faces.

    Args:
        output, faces: images in [-1, 1].
    """
    fid = FrechetInceptionDistance(AvatarsExtractor(), normalize=True)
    for images, real in ((faces, True), (output, False)):
        for batch in images.split(100):
            fid.update(batch.clamp(-1, 1) / 2 + 0.5, real=real)
    psnr = peak_signal_noise_ratio(output, faces, data_range=2.0, reduction="elementwise_mean", dim=(1, 2, 3))
    return {"psnr": psnr.item(), "fid": fid.compute().item()}


def train(faces, weight, steps):
    """Returns the averaged network. In the last two thirds of the steps, it trains with an adversary, too."""
    network = Autoencoder()
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    adversary = Adversary(PatchGAN(0, 3, SIDE, width=32, depth=2), "hinge", weight=weight, start=steps // 3)
    for_network = torch.optim.Adam(network.parameters(), 1e-3, (0.9, 0.99))
    for_adversary = torch.optim.Adam(adversary.parameters(), 3e-4, (0.5, 0.9))
    for step in range(steps):
        real = faces[torch.randint(len(faces), (16,))]
        output = network(real)
        loss = l1_loss(output, real)
        if weight:
            loss = loss + adversary.loss(output, iteration=step)
        loss.backward()
        for_network.step()
        for_network.zero_grad()
        average.update_parameters(network)
        if weight:
            adversary.step(real, output, for_adversary, iteration=step)
    return average


def main(weight, steps, seed, faces, output):
    """Trains, prints the scores of held-out faces, a twentieth of all, and writes the image."""
    images = Avatars(num_images=faces, image_size=SIDE).packed.images / 127.5 - 1
    held_out, training = images[: faces // 20], images[faces // 20 :]
    seed_everything(seed, verbose=False)
    network = train(training, weight, steps)
    with torch.no_grad():
        rebuilt = torch.cat([network(batch) for batch in held_out.split(100)])
    print(", ".join(f"{name} {value:.2f}" for name, value in scores(rebuilt, held_out).items()))
    rows = torch.cat([rebuilt[:8], held_out[:8]]) / 2 + 0.5
    save_image(interpolate(rows.clamp(0, 1), scale_factor=4), output, nrow=8, padding=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weight", type=float, default=0.01, help="weight of the adversarial loss; 0 trains without")
    parser.add_argument("--steps", type=int, default=6000, help="number of training iterations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the batches and of the weights")
    parser.add_argument("--faces", type=int, default=10000, help="number of faces, of which a twentieth is held out")
    parser.add_argument("--output", default="autoencoder.png", help="path of the PNG file")
    main(**vars(parser.parse_args()))
