import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.models.wgan_gp import WGANGP


def test_the_critic_s_loss_is_that_of_algorithm_1(tiny_gan):
    module = tiny_gan("wgan_gp", gradient_penalty=7.0).double()
    real, fake = torch.rand(2, 3, 1, 16, 16, dtype=torch.float64) * 2 - 1
    eps = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).view(3, 1, 1, 1)
    expected = 0.0
    for index in range(3):
        x = (eps[index] * real[index] + (1 - eps[index]) * fake[index])[None].requires_grad_()
        (gradient,) = torch.autograd.grad(module.discriminator(x).sum(), x)
        scores = module.discriminator(torch.stack([fake[index], real[index]]))
        expected += (scores[0] - scores[1] + 7.0 * (gradient.norm() - 1) ** 2).item() / 3
    loss = module.discriminator_losses(real, fake, {"eps": eps})["discriminator"].loss
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert module.generator_loss(fake, {}).item() == pytest.approx(-module.discriminator(fake).mean().item())


def test_every_critic_update_sees_fresh_images_latents_and_eps(tiny_gan, random_images, fit):
    module, seen = tiny_gan("wgan_gp", n_critic=3), []
    original = module.discriminator_losses
    module.discriminator_losses = lambda real, fake, batch: seen.append((real, batch)) or original(real, fake, batch)
    data = random_images(batch_size=4)
    fit(module, data, max_steps=6)  # an epoch has four steps of 3 x 4 images
    assert len(seen) == 18
    first_epoch = torch.cat([real for real, _ in seen[:12]]).flatten(1)
    assert len(torch.unique(first_epoch, dim=0)) == 48, "no image twice in an epoch"
    for name in ("latents", "eps"):
        drawn = torch.stack([batch[name] for _, batch in seen])
        assert len(torch.unique(drawn)) == drawn.numel()
    assert seen[0][1]["eps"].shape == (4, 1, 1, 1)
    expected = Noise(torch.Generator(), (module.seed, "discriminator", 2, 1)).uniform("eps", 4, 1, 1, 1)
    assert torch.equal(seen[2 * 3 + 1][1]["eps"], expected)


def test_real_images_are_dequantized_within_their_levels(tiny_gan, random_images, fit):
    """256 levels of the width 1/128 from -1 on, as in the authors' code."""
    seen, plain = [], []
    for module, images in ((tiny_gan("wgan_gp"), seen), (tiny_gan("wgan_gp", dequantize=False), plain)):
        original = module.discriminator_losses
        module.discriminator_losses = lambda real, *rest, to=images, f=original: to.append(real) or f(real, *rest)
        fit(module, random_images(batch_size=4), max_steps=1)
    seen, levels = torch.cat(seen).double(), (torch.cat(plain).double() + 1) * 127.5
    within = (seen + 1) * 128 - levels
    assert -1e-3 < within.min() < 0.02
    assert 0.98 < within.max() < 1 + 1e-3
    assert abs(within.mean().item() - 0.5) < 0.02
    points = {"image": torch.zeros(2, 2, 1, 1)}
    assert tiny_gan("wgan_gp", network="mlp", image_size=1, channels=2).augment(points) is points


def test_the_generator_has_twice_as_many_images_of_uniform_classes_and_the_critic_those_of_the_data(
    tiny_gan, random_images, fit
):
    module, made = tiny_gan("wgan_gp", num_classes=10, n_critic=2), []
    module.generator.register_forward_pre_hook(lambda network, inputs: made.append(inputs[1].clone()))
    batches = []
    original = module.discriminator_losses
    module.discriminator_losses = lambda real, fake, batch: batches.append(batch) or original(real, fake, batch)
    fit(module, random_images(batch_size=8), max_steps=2)
    critic = [labels for labels in made if len(labels) == 8]
    assert [each.tolist() for each in critic] == [batch["label"].tolist() for batch in batches]
    of_generator = [labels for labels in made if len(labels) == 16]
    for iteration, labels in enumerate(of_generator):
        noise = Noise(torch.Generator(), (module.seed, "generator", iteration))
        assert torch.equal(labels, (noise.uniform("labels", 16) * 10).long())
    assert len(of_generator) == 2


def test_a_critic_with_batch_norm_is_refused_with_the_reason(tiny_gan):
    said = r"batch norm, which mixes the images .* use critic_norm=none, layer or instance"
    with pytest.raises(RefusedInput, match=said):
        WGANGP(critic_norm="batch")

    class Normalized(WGANGP):
        def build_networks(self):
            self.generator, self.discriminator = nn.Linear(1, 1), nn.Sequential(nn.BatchNorm2d(3))

    with pytest.raises(RefusedInput, match=said):
        Normalized()


@pytest.mark.parametrize(("network", "norm"), [("dcgan", "layer"), ("resnet", "instance")])
def test_the_score_of_an_image_does_not_depend_on_other_images(tiny_gan, network, norm):
    critic = tiny_gan("wgan_gp", network=network, critic_norm=norm).discriminator
    images = torch.rand(4, 1, 16, 16)
    torch.testing.assert_close(critic(images)[:1], critic(images[:1]), rtol=1e-4, atol=1e-6)


def test_refusals_and_defaults():
    with pytest.raises(RefusedInput, match="gradient_penalty=-1"):
        WGANGP(gradient_penalty=-1.0)
    module = WGANGP(image_size=32)
    assert (module.n_critic, module.gradient_penalty, module.generator_batch_multiple) == (5, 10.0, 2)
    assert module.generator.norm.num_features == module.discriminator.head.in_features == 128
    assert WGANGP(image_size=32, generator_width=8).generator.norm.num_features == 8
    assert WGANGP(network="dcgan").generator_width is None
    with pytest.raises(RefusedInput, match="sum_features=True: the dcgan networks have no such option"):
        WGANGP(network="dcgan", sum_features=True)
    assert module.generator_optimizer.options["betas"] == (0.0, 0.9)
    assert module.classified_as_real("discriminator", torch.zeros(3)) is None
