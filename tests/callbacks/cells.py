"""What one rank does in the tests of callbacks that measure."""

import tempfile

import torch

from lit_gans.callbacks import GenerativeMetrics, ModeMetrics, PairedMetrics
from lit_gans.callbacks.reconstruction import ReconstructionMetrics
from lit_gans.data.sources.points import Ring
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.tiny import fit, random_images, tiny_gan


def measured(name, data, callback, world_size, strategy="network_ddp", **sizes):
    """Returns the values at iteration 0, where ranks have the weights that one process has."""
    torch.set_num_threads(1)
    ranks = {"devices": world_size, "strategy": strategy} if world_size > 1 else {}
    with tempfile.TemporaryDirectory() as folder:
        fit(tiny_gan(name, seed=3, **sizes), data, 1, callbacks=[callback], default_root_dir=folder, **ranks)
    return callback.first


def modes(num_samples, world_size=2):
    """Measures the modes of points; they are wide, so that the first samples are in some of them."""
    data, callback = Ring(num_points=64, batch_size=4, std=0.65), ModeMetrics(num_samples=num_samples, batch_size=20)
    return measured("gan", data, callback, world_size, image_size=1, channels=2)


def pairs(num_samples, world_size=2):
    """Measures translations."""
    callback = PairedMetrics(num_samples=num_samples, batch_size=8)
    return measured("pix2pix", random_images(batch_size=4), callback, world_size)


def reconstructions(num_samples, world_size=2):
    """Measures reconstructions."""
    callback = ReconstructionMetrics(num_samples=num_samples, batch_size=8, perceptual="none")
    return measured("autoencoder_kl", random_images(batch_size=4), callback, world_size)


def scores(num_samples, world_size=2, strategy="network_ddp"):
    """Measures generated against real images."""
    callback = GenerativeMetrics(DigitsExtractor(), num_samples=num_samples, batch_size=20, cache=False)
    return measured("dcgan", random_images(batch_size=4), callback, world_size, strategy)
