"""The trial of Projected GAN: what is frozen stays, what is mixed is mixed, and two ranks train what one does."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.projected_gan import FastGANGenerator, FrozenFeatures, ProjectedGAN, Projections, SkipLayerExcitation
from lit_gans.callbacks import GenerativeMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.efficientnet import EfficientnetLite0

SETTINGS = {"image_size": 16, "channels": 1, "latent_dim": 6, "feature_size": 32}
WIDTHS = {"generator_width": 4, "discriminator_width": 4}


@pytest.fixture
def module():
    return lambda **settings: ProjectedGAN(**{**SETTINGS, **WIDTHS, **settings})


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (16, [1024, 512, 256]),
        (64, [1024, 512, 256, 128, 128]),
        (512, [1024, 512, 256, 128, 128, 64, 32, 16]),
    ],
)
def test_the_generator_s_maps_are_as_wide_as_the_paper_s(size, expected):
    with torch.device("meta"):
        generator, narrow = FastGANGenerator(256, 3, size), FastGANGenerator(256, 3, size, width=4)
    assert [layers[1].num_features // 2 for layers in generator.maps] == expected
    assert [layers[1].num_features // 2 for layers in narrow.maps] == [4 * each // expected[-1] for each in expected]


def test_a_fine_map_is_multiplied_by_what_the_pooled_coarse_map_gives():
    torch.manual_seed(0)
    layer = SkipLayerExcitation(3, 2)
    coarse, fine = torch.randn(5, 3, 8, 8), torch.randn(5, 2, 6, 6)
    _, whole, _, mix, _ = layer.weights
    pooled = coarse.reshape(5, 3, 4, 2, 4, 2).mean((3, 5))
    hidden = torch.einsum("ncij,kcij->nk", pooled, whole.weight) + whole.bias
    hidden = torch.where(hidden > 0, hidden, 0.1 * hidden)
    weights = 1 / (1 + torch.exp(-(hidden @ mix.weight[:, :, 0, 0].T + mix.bias)))
    torch.testing.assert_close(layer(coarse, fine), fine * weights[:, :, None, None])


@pytest.mark.parametrize("size", [16, 128])
def test_generated_images_by_plain_layers(size):
    torch.manual_seed(0)
    generator, latents = FastGANGenerator(5, 3, size, width=2).eval(), torch.randn(4, 5)
    excited = {2: 0} if size == 16 else {4: 0, 5: 1}
    maps = []
    for index, (convolution, norm, _) in enumerate(generator.maps):
        if index == 0:
            made = torch.einsum("nz,zkij->nkij", latents, convolution.weight)
        else:
            doubled = maps[-1].repeat_interleave(2, 2).repeat_interleave(2, 3)
            made = functional.conv2d(doubled, convolution.weight, convolution.bias, padding=1)
        kept, gate = norm(made).chunk(2, 1)
        made = kept * torch.sigmoid(gate)
        maps.append(generator.excitations[excited[index]](maps[excited[index]], made) if index in excited else made)
    assert len(generator.excitations) == len(excited)
    torch.testing.assert_close(generator(latents), torch.tanh(generator.to_image[0](maps[-1])), rtol=1e-4, atol=1e-5)


def test_projections_by_sums():
    torch.manual_seed(0)
    projections = Projections((3, 5, 2), 2)
    maps = [torch.randn(2, channels, side, side + 2) for channels, side in ((3, 8), (5, 4), (2, 2))]
    fine, middle, coarse = (
        torch.einsum("nchw,kc->nkhw", each, layer.weight[:, :, 0, 0])
        for each, layer in zip(maps, projections.of_channels, strict=True)
    )
    assert [each.shape[1] for each in (fine, middle, coarse)] == [2, 4, 8]

    def mixed(features, size, weight):
        larger = nn.Upsample(size, mode="bilinear")(features)
        windows = functional.unfold(larger, 3, padding=1).reshape(2, -1, 9, *size)
        return torch.einsum("nckhw,dck->ndhw", windows, weight.flatten(2))

    weights = [layer.weight for layer in projections.of_scales]
    last = mixed(coarse, (4, 6), weights[2])
    second = mixed(middle + last, (8, 10), weights[1])
    first = mixed(fine + second, (16, 20), weights[0])
    torch.testing.assert_close(projections(maps), [first, second, last], rtol=1e-4, atol=1e-5)


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
    assert len(projections) == 8
    same = {name for name, weight in gan.named_parameters() if torch.equal(before[name], weight)}
    assert {name for name in same if not name.endswith("bias")} == projections  # a hinge may leave a bias as it is
    assert all(torch.equal(*pair) for pair in zip(features, gan._features.load().parameters(), strict=True))
    assert projections <= gan.state_dict().keys()
    assert not any("feature" in name for name in gan.state_dict())
    stepped = {id(each) for group in trainer.optimizers[1].param_groups for each in group["params"]}
    assert stepped == {id(each) for each in gan.discriminator.heads.parameters()}
    assert all(torch.equal(module().state_dict()[name], before[name]) for name in projections), "drawn from the seed"
    other = module(seed=1).state_dict()
    assert not any(torch.equal(other[name], before[name]) for name in projections)


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


def test_its_own_network_is_no_judge(module, random_images, fit):
    metrics = GenerativeMetrics(EfficientnetLite0(), num_samples=4)
    with pytest.raises(RefusedInput, match="metrics=efficientnet_lite0 would judge ProjectedGAN"):
        fit(module(), random_images(), max_steps=1, callbacks=[metrics])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": 4}, "sees images with 1 or 3 channels"),
        ({"freeze_discriminator": 1}, "is frozen already"),
        ({"feature_size": 16}, "feature_size=16"),
    ],
)
def test_refusals(module, settings, message):
    with pytest.raises(RefusedInput, match=message):
        module(**settings)
