"""Tiny networks, random images and short trainings that the tests share: fixtures, and ranks, which have none."""

from functools import cache

import torch
from lightning.pytorch import Trainer

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import sides
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
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


def random_images(**settings):
    """Makes a datamodule of random images: `random_images(batch_size=8)`."""
    return RandomImages(**{"image_size": 16, "channels": 1, "batch_size": 8, **settings})


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


def taken(cls, settings):
    """Returns the settings that a GAN takes: not every GAN has a `generator_width`."""
    return {name: value for name, value in settings.items() if name in schema(cls)}


def tiny_gan(name="dcgan", **settings):
    """Makes a registered GAN with tiny networks: `tiny_gan("dcgan", n_critic=2)`."""
    cls = gans()[name]
    return cls(**{**SMALL, **taken(cls, WIDTHS), **SETTINGS.get(name, {}), **settings})


@cache
def supports_classes(name):
    """Returns whether the networks of a registered GAN can be conditioned on classes."""
    if "num_classes" not in schema(gans()[name]):
        return False
    try:
        tiny_gan(name, num_classes=10)
    except RefusedInput:
        return False
    return True


def quiet_trainer(**arguments):
    """Makes a trainer on the CPU without logger, bar and checkpoints."""
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(**{"accelerator": "cpu", **quiet, **arguments})


def fit(module, data, max_steps, resume=None, **arguments):
    """Trains on the CPU for some iterations of a datamodule or a loader, without logger, bar and checkpoints, and
    returns the trainer.
    """
    trainer = quiet_trainer(**{"max_steps": max_steps, "max_epochs": -1, **arguments})
    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    return trainer
