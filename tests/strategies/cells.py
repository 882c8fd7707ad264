"""What the parity tests train: every GAN with its own layers, tiny, some steps, on one process or on two."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace
from functools import cache

import torch
from torch import nn

from lit_gans.check.one_process import FAR, relative_differences
from lit_gans.config.registry import gans
from lit_gans.training.optim import OptimizerConfig
from tests import tiny
from tests.gans import GANS

from .ranks import quiet_trainer

AUTOENCODER = tiny.AUTOENCODER | {"discriminator_start": 1}  # in the last iteration
SETTINGS = {
    "sngan": {"network": "resnet", "generator_batch_multiple": 2, "n_critic": 2},
    "wgan_gp": {"network": "dcgan", "critic_norm": "layer", "n_critic": 2},
    "gan": {"r1_gamma": 1.0},
    "dcgan": {"num_classes": 10},
    "r3gan": {"r1_gamma": 1.0, "r2_gamma": 0.5},
    "pix2pix": {"patch_depth": 2, "l1_weight": 10.0},
    "projected_gan": {"feature_size": 32},
    "cyclegan": {"patch_depth": 2, "cycle_weight": 1.0, "pool_size": 4, "blocks": 1},
    "autoencoder_kl": AUTOENCODER | {"kl_weight": 0.1, "latent_channels": 1},
    "autoencoder_kl:decoder": AUTOENCODER | {"train": "decoder", "latent_channels": 1},
    # the temperature multiplies gradients of the entropies by 200, and so their rounding errors
    "autoencoder_kl:lfq": AUTOENCODER | {"quantizer": "lfq", "latent_channels": 3, "entropy_weight": 0.01},
    "autoencoder_kl:vq": AUTOENCODER | {"quantizer": "vq", "num_codes": 8, "perceptual": "efficientnet_lite0"},
}
# Projected GAN: the gradient of a bias is a sum of large terms that cancel, off by 2e-3 in float32, 1e-16 in float64.
# CycleGAN: at 0.02, weights of 0.02 before a norm move by 0.04, and another layout of the memory changes them by 6e-5
SGD_LR = {"projected_gan": 2e-4, "cyclegan": 2e-3}
CLIPPED_LR = {"projected_gan": 2e-4}
# Projected GAN with seed 3: one activation is so close to the kink of its leaky ReLU that rounding flips its slope. If
# all weights change by one unit in the last place, a trained weight moves by 4e-6. With seed 8, it moves by 3e-7.
SEEDS = {"projected_gan": 8}
STEPS = 2
BATCH_SIZE = 8  # of all ranks together


@dataclass(frozen=True)
class Cell:
    """One training, with SGD, or with Adam, which divides rounding by rounding and so needs float64."""

    gan: str
    accumulate: int = 1
    clip: float | None = None
    optimizer: str = "sgd"
    precision: str = "32-true"

    def __str__(self):
        return "-".join(str(value) for value in asdict(self).values())


# one GAN for each shape of the loop: fakes that both turns share, several critic steps with a penalty, several
# discriminators, and one that starts late
LOOPS = ("dcgan", "wgan_gp", "d2gan", "autoencoder_kl")


def matrix(**fixed):
    """Every GAN, with and without accumulation and clipping."""
    return [Cell(*values, **fixed) for values in itertools.product(GANS, (1, 2), (None, 0.05))]


def build(cell):
    optimizer = (
        OptimizerConfig("SGD", lr=SGD_LR.get(cell.gan, 0.02) if cell.clip is None else CLIPPED_LR.get(cell.gan, 0.05))
        if cell.optimizer == "sgd"
        else OptimizerConfig("Adam", lr=1e-3, betas=(0.5, 0.9))
    )
    cls = gans()[cell.gan.partition(":")[0]]
    module = cls(
        **tiny.SMALL,
        **tiny.taken(cls, tiny.WIDTHS),
        **SETTINGS.get(cell.gan, {}),
        accumulate_gradients=cell.accumulate,
        clip_gradients=cell.clip,
        # other kernels round differently, and sharded weights cannot be in channels_last
        channels_last=cell.precision != "bf16-mixed",
        generator_optimizer=optimizer,
        discriminator_optimizer=optimizer,
        seed=SEEDS.get(cell.gan, 3),
    )
    for layer in module.modules():  # gloo has no synchronized batch norm, and each rank has its own statistics
        if isinstance(layer, nn.BatchNorm2d):
            layer.train = lambda mode=True, layer=layer: layer
            layer.training = False
    return module


def train(cell, data_class, world_size=1, callbacks=(), num_nodes=1, **arguments):
    """Trains a cell and returns its module."""
    module = build(cell)
    data = data_class(image_size=16, channels=1, batch_size=BATCH_SIZE // world_size // cell.accumulate)
    trainer = quiet_trainer(
        max_epochs=-1,
        devices=world_size // num_nodes,
        num_nodes=num_nodes,
        precision=cell.precision,
        callbacks=[*callbacks],
        **{"max_steps": STEPS, "use_distributed_sampler": True, **arguments},
    )
    trainer.fit(module, datamodule=data)
    return module


def half(gan):
    """The cell of a GAN in bfloat16."""
    return Cell(gan, precision="bf16-mixed")


def assert_trained_alike(found, cell):
    """Compares weights with those that one process trains: within 1e-6, and within the check's limit of what each
    parameter has moved; in bfloat16 no farther off than twice what its rounding does to one process.
    """
    alone = trained_alone(cell)
    assert found.keys() == alone.keys()
    if cell.precision == "bf16-mixed":
        exact = trained_alone(replace(cell, precision="32-true"))
        assert distance(found, alone) <= 2 * distance(alone, exact), (distance(found, alone), distance(alone, exact))
    else:
        assert_near(found, alone)
        off = relative_differences(alone, found, moved_alone(cell))
        worst = max(off, key=off.get)
        assert off[worst] <= FAR, (worst, off[worst])


def assert_near(found, alone):
    differences = {name: (found[name] - value).abs().max().item() for name, value in alone.items()}
    worst = max(differences, key=differences.get)
    assert differences[worst] <= 1e-6, (worst, differences[worst])


def distance(one, other):
    """Returns the norm of the difference of two state dicts."""
    return torch.linalg.vector_norm(torch.cat([(one[name] - other[name]).flatten().float() for name in one])).item()


@cache
def trained_alone(cell):
    """Returns the weights that one process trains."""
    return train(cell, many_images()).state_dict()


@cache
def moved_alone(cell):
    """Returns the norm of each weight's change on one process."""
    start = build(cell).state_dict()
    return {name: (value - start[name]).double().norm().item() for name, value in trained_alone(cell).items()}


def many_images():
    """Random images for more than one step of the largest cell."""
    from tests.tiny import RandomImages

    class ManyImages(RandomImages):
        num_images = 320

    return ManyImages
