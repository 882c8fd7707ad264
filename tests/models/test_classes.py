"""Conditional GANs: images of one class differ as real images of that class do."""

import pytest
import torch

from lit_gans import build, compose
from lit_gans.config.registry import gans
from lit_gans.data.sources.digits import Digits
from lit_gans.networks.dcgan import DCGANGenerator
from lit_gans.networks.mlp import MLPGenerator
from lit_gans.training.optim import OptimizerConfig

FAST = OptimizerConfig("Adam", lr=2e-3, betas=(0.5, 0.999))
SMALL = {
    "image_size": 16,
    "channels": 1,
    "latent_dim": 32,
    "generator_optimizer": FAST,
    "discriminator_optimizer": FAST,
}


def shares_of_real_deviation(module, data):
    """Returns the mean deviation of a pixel inside each class over that of the real images."""
    labels = torch.arange(10).repeat_interleave(100)
    fake = module.decode(module.latents(len(labels), 3), labels=labels)
    real, classes = data.load()
    shares = [fake[labels == c].std(0).mean() / (real[classes == c] / 255).std(0).mean() for c in range(10)]
    return torch.stack(shares)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "batch_size", "settings"),
    [
        ("dcgan", 32, {"generator_width": 8, "discriminator_width": 8, "r1_gamma": 1.0, "r1_every": 4}),
        ("gan", 64, {"r1_gamma": 10.0}),
    ],
)
def test_after_300_iterations_a_class_has_at_least_half_of_its_real_deviation(fit, name, batch_size, settings):
    module = gans()[name](**SMALL, **settings, num_classes=10)
    data = Digits(image_size=16, channels=1, batch_size=batch_size)
    fit(module, data, max_steps=300)
    assert shares_of_real_deviation(module, data).min() > 0.5


NARROW = ("model.generator_width=16", "model.discriminator_width=8")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("dcgan", ()),
        ("sngan", ()),
        ("sngan", ("model.network=resnet", *NARROW)),  # conditional batch norm
        ("wgan_gp", ()),
    ],
    ids=["dcgan", "sngan", "sngan_resnet", "wgan_gp"],
)
def test_after_300_iterations_of_the_experiment_a_class_has_at_least_half_of_its_real_deviation(fit, name, overrides):
    quiet = ("metrics=none", "logger=none", "callbacks=none", "trainer.accelerator=cpu")
    module, data, _ = build(compose(f"experiment={name}_digits_classes", *overrides, *quiet))
    fit(module, data, max_steps=300)
    assert shares_of_real_deviation(module, data).min() > 0.5


@pytest.mark.parametrize(("network", "latent_dim"), [(DCGANGenerator, 32), (MLPGenerator, 512)])
def test_a_new_generator_reads_the_latent_more_than_the_class(network, latent_dim):
    torch.manual_seed(0)
    generator = network(latent_dim, 1, 16, 8, num_classes=10).eval()
    norms = generator.embedding.weight.norm(dim=1)
    assert norms.mean().item() == pytest.approx(1, abs=0.1), "that of a one-hot vector"
    with torch.no_grad():
        latents, labels = torch.randn(10, latent_dim).repeat_interleave(10, 0), torch.arange(10).repeat(10)
        images = generator(latents, labels).unflatten(0, (10, 10))
    of_latents, of_classes = images.std(0).mean(), images.std(1).mean()
    assert of_classes > 0
    assert of_latents > 3 * of_classes
