"""What one rank does in the tests of callbacks that measure."""

import tempfile

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks import GenerativeMetrics, ModeMetrics, PairedMetrics
from lit_gans.callbacks.reconstruction import ReconstructionMetrics
from lit_gans.config.registry import gans
from lit_gans.data.sources.points import Ring
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.tiny import SETTINGS, SMALL, WIDTHS, RandomImages


def measured(name, data, callback, world_size, strategy="network_ddp", **sizes):
    """Returns the values at iteration 0, where ranks have the weights that one process has."""
    torch.set_num_threads(1)
    module = gans()[name](**{**SMALL, **WIDTHS, **SETTINGS.get(name, {}), "seed": 3, **sizes})
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            max_steps=1,
            max_epochs=-1,
            accelerator="cpu",
            devices=world_size,
            strategy=strategy if world_size > 1 else "auto",
            callbacks=[callback],
            default_root_dir=folder,
            **dict.fromkeys(switches, False),
        )
        trainer.fit(module, datamodule=data)
    return callback.first


def modes(num_samples, world_size=2):
    """Measures the modes of points; they are wide, so that the first samples are in some of them."""
    data, callback = Ring(num_points=64, batch_size=4, std=0.65), ModeMetrics(num_samples=num_samples, batch_size=20)
    return measured("gan", data, callback, world_size, image_size=1, channels=2)


def pairs(num_samples, world_size=2):
    """Measures translations."""
    data = RandomImages(image_size=16, channels=1, batch_size=4)
    return measured("pix2pix", data, PairedMetrics(num_samples=num_samples, batch_size=8), world_size)


def reconstructions(num_samples, world_size=2):
    """Measures reconstructions."""
    data = RandomImages(image_size=16, channels=1, batch_size=4)
    callback = ReconstructionMetrics(num_samples=num_samples, batch_size=8, perceptual="none")
    return measured("autoencoder_kl", data, callback, world_size)


def scores(num_samples, world_size=2, strategy="network_ddp"):
    """Measures generated against real images."""
    data = RandomImages(image_size=16, channels=1, batch_size=4)
    callback = GenerativeMetrics(DigitsExtractor(), num_samples=num_samples, batch_size=20, cache=False)
    return measured("dcgan", data, callback, world_size, strategy)
