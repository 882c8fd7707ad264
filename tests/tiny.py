"""Tiny networks and random images that the tests share."""

import torch

from lit_gans.common.size import sides
from lit_gans.data.base import PairedData


class RandomImages(PairedData):
    """Seeded random images of 10 classes, paired with others: enough for anything that needs no picture."""

    num_images = 48
    num_classes = 10

    def pairs(self, held_out):
        generator = torch.Generator().manual_seed(int(held_out))
        shape = (2, self.num_images, self.channels, *sides(self.image_size))
        images, pictures = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return {"input": pictures, "image": images}

    def make_dataset(self):
        dataset = super().make_dataset()
        dataset.labels = torch.arange(self.num_images) % 10
        return dataset


SMALL = {"image_size": 16, "channels": 1, "latent_dim": 6}
WIDTHS = {"generator_width": 4, "discriminator_width": 4}
AUTOENCODER = {"patch_depth": 2, "multipliers": (1, 2), "blocks": 1, "perceptual": "none", "discriminator_start": 0}
SETTINGS = {
    "sngan": {"spectral_generator": True},
    "wgan_gp": {"critic_norm": "layer"},
    "pix2pix": {"patch_depth": 2},
    "cyclegan": {"patch_depth": 2, "pool_size": 4, "blocks": 1},
    "autoencoder_kl": AUTOENCODER,
    "projected_gan": {"feature_size": 32},
}
