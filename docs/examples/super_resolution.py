"""Enlarges cartoon faces from 16x16 to 64x64, with an L1 loss alone or with a discriminator beside it.

    python docs/examples/super_resolution.py            # L1 and an adversary
    python docs/examples/super_resolution.py --weight 0 # L1 alone

Prints PSNR and the FID of 1,000 held-out faces, and writes small faces, enlarged faces and true faces to a PNG file.
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.nn.functional import avg_pool2d, interpolate, l1_loss
from torch.utils.data import DataLoader
from torchmetrics.image import PeakSignalNoiseRatio
from torchvision.utils import save_image

from lit_gans import Adversary
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.efficientnet import EfficientnetLite2
from lit_gans.networks.patchgan import PatchGAN


class Enlarger(nn.Module):
    """Adds details to bilinearly enlarged images (N, 3, 4H, 4W), given small images (N, 3, H, W)."""

    def __init__(self, width=48, blocks=4):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for _ in range(blocks):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, 3 * 16, 3, padding=1), nn.PixelShuffle(4))

    def forward(self, small):
        return interpolate(small, scale_factor=4, mode="bilinear") + self.layers(small)


class SuperResolution(LightningModule):
    """Trains the network with L1, and with an adversary unless its weight is 0."""

    def __init__(self, weight):
        super().__init__()
        self.automatic_optimization = False
        self.network = Enlarger()
        discriminator = PatchGAN(0, 3, 64, width=32, depth=2, norm="none")
        self.adversary = Adversary(discriminator, "logistic", weight=weight, r1_gamma=0.1, penalty_every=4)
        self.psnr = PeakSignalNoiseRatio(data_range=2.0)
        self.fid = FrechetInceptionDistance(EfficientnetLite2(), normalize=True)

    def training_step(self, images, batch_idx):
        for_network, for_adversary = self.optimizers()
        output = self.network(avg_pool2d(images, 4))
        loss = l1_loss(output, images)
        if self.adversary.weight:
            loss = loss + self.adversary.loss(output, iteration=batch_idx)
        self.manual_backward(loss)
        for_network.step()
        for_network.zero_grad()
        if self.adversary.weight:
            step = self.adversary.step
            step(images, output, for_adversary, iteration=batch_idx, backward=self.manual_backward)

    def validation_step(self, images, batch_idx):
        output = self.network(avg_pool2d(images, 4)).clamp(-1, 1)
        self.psnr.update(output, images)
        for batch, real in ((images, True), (output, False)):
            self.fid.update((batch + 1) / 2, real=real)

    def on_validation_epoch_end(self):
        self.log_dict({"psnr": self.psnr.compute(), "fid_efficientnet_lite2": self.fid.compute()}, prog_bar=True)

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), 5e-4, (0.0, 0.99)) for part in (self.network, self.adversary)]


def main(weight, steps, num_images, output):
    """Trains, measures on held-out faces, and writes the image."""
    seed_everything(0, verbose=False)
    images = Avatars(num_images=num_images, image_size=64).packed.images / 127.5 - 1
    train, held_out = images[: -num_images // 10], images[-num_images // 10 :]
    module = SuperResolution(weight)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    trainer = Trainer(max_steps=steps * (2 if weight else 1), max_epochs=-1, accelerator="cpu", **quiet)
    trainer.fit(module, DataLoader(train, batch_size=16, shuffle=True))
    trainer.validate(module, DataLoader(held_out, batch_size=100))
    with torch.no_grad():
        small = avg_pool2d(held_out[:8], 4)
        rows = [interpolate(small, scale_factor=4), module.network(small).clamp(-1, 1), held_out[:8]]
    save_image(torch.cat(rows) / 2 + 0.5, output, nrow=8, padding=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--weight", type=float, default=0.02, help="weight of the adversarial loss; 0 trains with L1 alone"
    )
    parser.add_argument("--steps", type=int, default=2000, help="number of training iterations")
    parser.add_argument("--num-images", type=int, default=10_000, help="number of faces; a tenth is held out")
    parser.add_argument("--output", default="super_resolution.png", help="path of the PNG file")
    main(**vars(parser.parse_args()))
