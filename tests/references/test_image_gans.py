"""SNGAN, WGAN-GP and R3GAN: networks, losses, penalty and steps."""

import pytest
import torch

from lit_gans.models.wgan_gp import WGANGP
from lit_gans.networks.resnet import ResNetDiscriminator, ResNetGenerator
from lit_gans.networks.spectral import spectrally_normalized
from lit_gans.training.losses import (
    critic_generator,
    hinge_discriminator,
    logistic_discriminator,
    non_saturating_generator,
    relativistic,
    wasserstein_critic,
)
from lit_gans.training.penalties import zero_centered_penalty
from tests.models import r3gan_reference
from tests.references.conftest import checkout, copy_weights, gradients, training_norms

COLLECTION, MIMICRY, R3GAN = "w86763777+pytorch-gan-collections", "kwotsin+mimicry", "brownvc+R3GAN"


def test_sngan(same):
    with checkout(COLLECTION) as load:
        module, losses = load("source.models.sngan"), load("source.losses")
        theirs, ours = module.ResGenerator32(128), ResNetGenerator(128, 3, 32)
        copy_weights(theirs, ours)
        latents = torch.randn(3, 128)
        same("SNGAN: generator", ours(latents), theirs(latents))
        theirs, ours = module.ResDiscriminator32(), spectrally_normalized(ResNetDiscriminator(3, 32))
        copy_weights(theirs, ours)
        training_norms(theirs, ours)
        real, fake = torch.rand(2, 3, 3, 32, 32) * 2 - 1
        same("SNGAN: discriminator", ours(real), theirs(real)[:, 0])
        hinge = losses.Hinge()
        same("SNGAN: hinge losses", hinge_discriminator(ours(real), ours(fake)), hinge(theirs(real), theirs(fake)))
        same("SNGAN: hinge losses", critic_generator(ours(fake)), hinge(theirs(fake)))


def test_losses_of_scores(same):
    real, fake = torch.randn(2, 50) * 5
    with checkout(COLLECTION) as load:
        losses = load("source.losses")
        for name in ("BCEWithLogits", "Softplus"):
            theirs = getattr(losses, name)()
            same("GAN, DCGAN: logistic losses", logistic_discriminator(real, fake), theirs(real, fake))
            same("GAN, DCGAN: logistic losses", non_saturating_generator(fake), theirs(fake))
        theirs = losses.Wasserstein()
        same("WGAN-GP: Wasserstein losses", wasserstein_critic(real, fake), theirs(real, fake))
        same("WGAN-GP: Wasserstein losses", critic_generator(fake), theirs(fake))


def test_wgan_gp_s_critic_and_penalty(same, monkeypatch):
    with checkout(MIMICRY, torch_mimicry={}, torch_mimicry__training={}) as load:  # whose __init__ import TensorFlow
        theirs = load("torch_mimicry.nets.wgan_gp.wgan_gp_32").WGANGPDiscriminator32()
        for layer in theirs.modules():
            if isinstance(layer, torch.nn.ReLU):
                layer.inplace = False  # which would also change the input of the shortcut
        ours = WGANGP(image_size=32, channels=3, channels_last=False).double()
        copy_weights(theirs, ours.discriminator)
        real, fake = torch.rand(2, 3, 3, 32, 32) * 2 - 1
        same("WGAN-GP: critic", ours.discriminator(real), theirs(real)[:, 0])
        eps = torch.rand(3, 1, 1, 1)
        monkeypatch.setattr(torch, "rand", lambda *shape: eps.view(3, 1))
        penalty = theirs.compute_gradient_penalty_loss(real, fake, 10.0)
        loss = theirs.compute_gan_loss(theirs(real), theirs(fake)) + penalty
        scored = ours.discriminator_losses(real, fake, {"eps": eps})["discriminator"]
        same("WGAN-GP: penalty", 10 * scored.penalty, penalty)
        same("WGAN-GP: critic's loss", scored.loss, loss)
        weights = [p.norm() for p in gradients(scored.loss, ours.discriminator) if p is not None]
        same("WGAN-GP: sum of gradients", sum(weights), sum(p.norm() for p in gradients(loss, theirs) if p is not None))


@pytest.mark.parametrize("num_classes", [0, 7])
def test_r3gan_s_steps_are_those_of_the_record(same, num_classes):
    """`tests/models/test_r3gan.py` compares ours with this record: steps, both penalties, schedules and average."""
    torch.set_default_dtype(torch.float32)
    with checkout(R3GAN):
        found = r3gan_reference.train_reference(num_classes)
    known = r3gan_reference.json.loads(r3gan_reference.RECORD.read_text())["steps"][str(num_classes)]
    for name, value in known.items():
        same("R3GAN: record of 3 steps", *(torch.tensor(each, dtype=torch.float64) for each in (found[name], value)))


def test_r3gan_s_losses(same):
    with checkout(R3GAN) as load:
        theirs = load("R3GAN.Trainer").AdversarialTraining(None, None)
        images = torch.randn(4, 3, 8, 8, requires_grad=True)
        scores = images.sin().sum((1, 2, 3))
        expected = theirs.ZeroCenteredGradientPenalty(images, scores).mean() / 2
        same("R3GAN: R1 and R2", zero_centered_penalty(images, scores), expected)
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1), torch.nn.Flatten(0))
        trainer = load("R3GAN.Trainer").AdversarialTraining(lambda noise, _: noise, lambda x, _: network(x))
        real, fake = torch.randn(2, 4, 3, 8, 8)
        loss, *_ = trainer.AccumulateDiscriminatorGradients(fake, real, None, torch.tensor(1.0))
        same("R3GAN: relativistic loss", relativistic(network(real), network(fake)), loss.mean())
