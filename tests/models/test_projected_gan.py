"""Projected GAN: what is frozen stays, losses are those of the paper, and its own network is no judge."""

from functools import partial

import pytest
import torch

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.efficientnet import EfficientnetLite0
from lit_gans.models.projected_gan import FrozenFeatures, ProjectedGAN
from lit_gans.networks.fastgan import FastGANGenerator
from lit_gans.training.optim import OptimizerConfig


@pytest.fixture
def module(tiny_gan):
    return partial(tiny_gan, "projected_gan")


def test_maps_are_those_of_the_extractor_of_the_same_images():
    images = torch.randint(0, 256, (2, 1, 32, 64), dtype=torch.uint8)
    network = EfficientnetLite0().network
    expected = network.maps((images.expand(-1, 3, -1, -1).float() - 127) / 128)[1:]
    found = FrozenFeatures()(images / 127.5 - 1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert tuple(each.shape[1] for each in found) == FrozenFeatures.channels


def test_a_training_changes_heads_and_generator_and_leaves_features_and_projections_bitwise(module, random_images, fit):
    gan = module()
    before = {name: weight.detach().clone() for name, weight in gan.named_parameters()}
    features = [weight.clone() for weight in gan._features.load().parameters()]
    trainer = fit(gan, random_images(), max_steps=2)
    projections = {name for name in before if name.startswith("discriminator.projections.")}
    assert len(projections) == 16
    assert {name for name, weight in gan.named_parameters() if torch.equal(before[name], weight)} == projections
    assert all(torch.equal(*pair) for pair in zip(features, gan._features.load().parameters(), strict=True))
    assert projections <= gan.state_dict().keys()
    assert not any("feature" in name for name in gan.state_dict())
    stepped = {id(each) for group in trainer.optimizers[1].param_groups for each in group["params"]}
    assert stepped == {id(each) for each in gan.discriminator.heads.parameters()}
    assert all(torch.equal(module().state_dict()[name], before[name]) for name in projections), "drawn from the seed"
    other = module(seed=1).state_dict()
    assert not any(torch.equal(other[name], before[name]) for name in projections)


@pytest.mark.parametrize("r1_gamma", [0.0, 0.1])
def test_half_precision_leaves_the_features_in_float32(module, random_images, fit, r1_gamma):
    gan = module(r1_gamma=r1_gamma)
    features = [weight.clone() for weight in gan._features.load().parameters()]
    fit(gan, random_images(), max_steps=2, precision="bf16-mixed")
    assert all(torch.equal(*pair) for pair in zip(features, gan._features.load().parameters(), strict=True))
    assert {weight.dtype for weight in gan._features.load().parameters()} == {torch.float32}
    images = torch.rand(2, 3, 32, 32) * 2 - 1
    half, full = (gan._features(images.bfloat16().to(dtype)) for dtype in (torch.bfloat16, torch.float32))
    assert all(torch.equal(one, other.bfloat16()) for one, other in zip(half, full, strict=True))


def test_losses_are_sums_of_the_hinge_over_the_discriminators_and_reach_the_generator(module):
    gan = module(feature_size=64, image_size=(16, 32))
    real, fake = torch.rand(2, 4, 1, 16, 32) * 2 - 1
    gan.discriminator.eval()
    on_real, on_fake = gan.discriminator(real), gan.discriminator(fake)
    # 64x128 pixels: maps of 32x64, 16x32, 8x16 and 4x8, halved down to 8
    assert [tuple(scores.shape) for scores in on_real] == [(4, 5, 13), (4, 5, 13), (4, 5, 13), (4, 1, 5)]
    expected = sum(
        (1 - one).clamp(min=0).mean() + (1 + other).clamp(min=0).mean()
        for one, other in zip(on_real, on_fake, strict=True)
    )
    torch.testing.assert_close(gan.discriminator_losses(real, fake, {})["discriminator"].loss, expected)
    fake = fake.requires_grad_()
    loss = gan.generator_loss(fake, {})
    torch.testing.assert_close(loss, -sum(scores.mean() for scores in on_fake))
    (gradient,) = torch.autograd.grad(loss, fake)
    assert gradient.abs().sum((0, 1)).all(), "every pixel counts"


def test_trains_any_generator(module, random_images, fit):
    assert fit(module(network="resnet"), random_images(), max_steps=1).global_step == 1


def test_each_step_draws_new_latents_and_map_noise(module, random_images, fit):
    gan, seen = module(), []
    original = gan.generate
    gan.generate = lambda generator, batch: seen.append(batch) or original(generator, batch)
    fit(gan, random_images(batch_size=4), max_steps=2)
    assert len(seen) == 4, "once for the discriminators and once for the generator"
    for name, shape in {"latents": (6,), **{f"noise_{i}": s for i, s in enumerate(gan.generator.noise_shapes)}}.items():
        drawn = torch.stack([batch[name] for batch in seen])
        assert drawn.shape == (4, 4, *shape)
        assert len(torch.unique(drawn)) == drawn.numel()


def test_samples_depend_on_the_seed_alone_also_with_map_noise(module):
    gan = module()
    for layer in gan.generator.modules():
        if getattr(layer, "noise_weight", None) is not None:
            torch.nn.init.ones_(layer.noise_weight)
    inputs = gan.latents(4)
    assert torch.equal(gan.decode(inputs, seed=1), gan.decode(inputs, seed=1))
    assert not torch.equal(gan.decode(inputs, seed=1), gan.decode(inputs, seed=2))
    lite = module(lite=True)
    assert torch.equal(lite.decode(inputs, seed=1), lite.decode(inputs, seed=2)), "which has no noise"


def test_the_defaults_are_the_paper_s():
    with torch.device("meta"):
        gan = ProjectedGAN(image_size=256)
    assert isinstance(gan.generator, FastGANGenerator)
    assert (len(gan.generator.maps[1]), len(gan.generator.noise_shapes)) == (2, 12)
    assert gan.augmentations.diffaugment == ("color", "translation", "small_cutout")
    assert gan.latent_dim == 256
    assert gan.discriminator.size == [256, 256]
    assert [len(head.layers) for head in gan.discriminator.heads] == [13, 10, 7, 4]
    adam = OptimizerConfig("Adam", lr=2e-4, betas=(0.0, 0.99)).init_args
    assert gan.generator_optimizer.init_args == gan.discriminator_optimizer.init_args == adam


def test_the_network_of_its_loss_is_no_extractor(module, random_images, fit):
    metrics = GenerativeMetrics(EfficientnetLite0(), num_samples=4)
    message = "metrics=efficientnet_lite0 uses a feature extractor that a loss of ProjectedGAN also uses"
    with pytest.raises(RefusedInput, match=message):
        fit(module(), random_images(), max_steps=1, callbacks=[metrics])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"freeze_discriminator": 1}, "are always frozen"),
        ({"channels": 2}, "channels=2: the frozen classifier supports images with 1 or 3 channels"),
        ({"channels": 4}, "channels=4"),
        ({"feature_size": 16}, "feature_size=16"),
        ({"network": "dcgan", "num_classes": 10}, "the discriminators do not support class conditioning"),
        ({"network": "resnet", "lite": True}, "lite=True: the resnet networks have no such option"),
    ],
)
def test_refusals(module, settings, message):
    with pytest.raises(RefusedInput, match=message):
        module(**settings)
