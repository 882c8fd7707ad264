"""What the parity tests train: every GAN with its own layers, tiny, some steps, on one process or on two."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from functools import cache

import torch
from lightning.pytorch import Trainer
from torch import nn

from lit_gans.optim import SGD, Adam
from lit_gans.registry import gans

SETTINGS = {
    "sngan": {"network": "resnet", "generator_batch_multiple": 2, "n_critic": 2},
    "wgan_gp": {"network": "dcgan", "critic_norm": "layer", "n_critic": 5},
    "gan": {"r1_gamma": 1.0},
    "dcgan": {"num_classes": 10},
    "pix2pix": {"patch_depth": 2, "l1_weight": 10.0},
}
STEPS = 3
BATCH_SIZE = 8  # of all ranks together


@dataclass(frozen=True)
class Cell:
    """One training. `optimizer` is sgd in float32 or adam in float64."""

    gan: str
    accumulate: int = 1
    clip: float | None = None
    optimizer: str = "sgd"

    def __str__(self):
        return "-".join(str(value) for value in asdict(self).values())


def matrix(**fixed):
    """Every GAN, with and without accumulation and clipping."""
    names = [name for name, cls in gans().items() if cls.__module__.startswith("lit_gans.")]
    return [Cell(*parts, **fixed) for parts in itertools.product(names, (1, 2), (None, 0.05))]


def build(cell):
    optimizer = SGD(learning_rate=0.02) if cell.optimizer == "sgd" else Adam(learning_rate=1e-3, betas=(0.5, 0.9))
    sizes = {"image_size": 16, "channels": 1, "generator_width": 4, "discriminator_width": 4, "latent_dim": 6}
    module = gans()[cell.gan](
        **sizes,
        **SETTINGS.get(cell.gan, {}),
        accumulate_gradients=cell.accumulate,
        clip_gradients=cell.clip,
        generator_optimizer=optimizer,
        discriminator_optimizer=optimizer,
        seed=3,
    )
    module.configure_model()
    for (
        layer
    ) in module.modules():  # gloo has no synchronised batch norm, and parts of a batch have their own statistics
        if isinstance(layer, nn.BatchNorm2d):
            layer.train = lambda mode=True, layer=layer: layer
            layer.training = False
    return module


def train(cell, data_class, world_size=1, callbacks=(), **arguments):
    """Trains a cell and returns its module."""
    torch.set_num_threads(1)
    module = build(cell)
    data = data_class(image_size=16, channels=1, batch_size=BATCH_SIZE // world_size // cell.accumulate)
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    precision = "32-true" if cell.optimizer == "sgd" else "64-true"
    trainer = Trainer(
        max_steps=STEPS,
        max_epochs=-1,
        accelerator="cpu",
        devices=world_size,
        precision=precision,
        callbacks=[*callbacks],
        **dict.fromkeys(switches, False),
        **arguments,
    )
    trainer.fit(module, datamodule=data)
    return module


@cache
def trained_alone(cell):
    """Returns the weights that one process trains."""
    return train(cell, many_images()).state_dict()


def many_images():
    """Random images for more than one step of the largest cell."""
    from tests.conftest import RandomImages

    class ManyImages(RandomImages):
        num_images = 320

    return ManyImages
