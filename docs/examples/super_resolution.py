"""Enlarges cartoon faces from 16x16 to 64x64, with an L1 loss alone or with a discriminator beside it.

    python docs/examples/super_resolution.py            # L1 loss and an adversary
    python docs/examples/super_resolution.py --weight 0 # L1 loss alone

The L1 loss alone blurs what the small image does not show. Prints two scores of held-out faces, and writes eight small,
enlarged and true faces to a PNG file. Needs the extra `avatars`; the first run draws the faces.
"""

import argparse

import torch
from lightning.pytorch import seed_everything
from torch import nn
from torch.nn.functional import avg_pool2d, interpolate, l1_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchmetrics.functional.image import peak_signal_noise_ratio
from torchvision.utils import save_image

from lit_gans import Adversary
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.avatars import AvatarsExtractor
from lit_gans.networks.patchgan import PatchGAN

FACTOR, SIDE, CROP = 4, 64, 32  # CROP: side of the parts of faces that are trained on, in pixels


class Residual(nn.Module):
    """Adds two convolutions to their input."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, hidden):
        return hidden + self.layers(hidden)


class Enlarger(nn.Module):
    """Maps images (N, 3, H, W) in [-1, 1] to images (N, 3, 4 H, 4 W)."""

    def __init__(self, width=48, blocks=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            *(Residual(width) for _ in range(blocks)),
            nn.Conv2d(width, 4 * 32, 3, padding=1),
            nn.PixelShuffle(2),
            nn.ReLU(),
            Residual(32),
            nn.Conv2d(32, 4 * 16, 3, padding=1),
            nn.PixelShuffle(2),
            nn.ReLU(),
            nn.Conv2d(16, 3, 3, padding=1),
        )

    def forward(self, small):
        return enlarged(small) + self.layers(small)


def enlarged(small):
    """Returns images enlarged by `FACTOR`, with bilinear interpolation."""
    return interpolate(small, scale_factor=FACTOR, mode="bilinear")


def crops(faces, num):
    """Returns `num` random faces (num, 3, CROP, CROP), all cropped at the same random position."""
    top, left = (FACTOR * torch.randint((SIDE - CROP) // FACTOR + 1, (2,))).tolist()
    chosen = faces[torch.randint(len(faces), (num,))]
    return chosen[..., top : top + CROP, left : left + CROP]


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
    network = Enlarger()
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    adversary = Adversary(PatchGAN(3, 3, CROP, width=32, depth=2), "hinge", weight=weight, start=steps // 3)
    for_network = torch.optim.Adam(network.parameters(), 4e-4, (0.9, 0.99))
    for_adversary = torch.optim.Adam(adversary.parameters(), 3e-4, (0.5, 0.9))
    for step in range(steps):
        real = crops(faces, 16)
        small = avg_pool2d(real, FACTOR)
        output, condition = network(small), [enlarged(small)]
        loss = l1_loss(output, real)
        if weight:
            loss = loss + adversary.loss(output, condition=condition, iteration=step)
        loss.backward()
        for_network.step()
        for_network.zero_grad()
        average.update_parameters(network)
        if weight:
            adversary.step(real, output, for_adversary, condition=condition, iteration=step)
    return average


def main(weight, steps, seed, faces, output):
    """Trains, prints the scores of held-out faces, a twentieth of all, and writes the image."""
    images = Avatars(num_images=faces, image_size=SIDE).packed.images / 127.5 - 1
    held_out, training = images[: faces // 20], images[faces // 20 :]
    seed_everything(seed, verbose=False)
    network = train(training, weight, steps)
    small = avg_pool2d(held_out, FACTOR)
    with torch.no_grad():
        large = torch.cat([network(batch) for batch in small.split(100)])
    print(", ".join(f"{name} {value:.2f}" for name, value in scores(large, held_out).items()))
    pixels = interpolate(small[:8], scale_factor=FACTOR)
    rows = torch.cat([pixels, large[:8], held_out[:8]]) / 2 + 0.5
    save_image(interpolate(rows.clamp(0, 1), scale_factor=2), output, nrow=8, padding=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weight", type=float, default=0.003, help="weight of the adversarial loss; 0 trains without")
    parser.add_argument("--steps", type=int, default=6000, help="number of training iterations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the batches and of the weights")
    parser.add_argument("--faces", type=int, default=10000, help="number of faces, of which a twentieth is held out")
    parser.add_argument("--output", default="super_resolution.png", help="path of the PNG file")
    main(**vars(parser.parse_args()))
