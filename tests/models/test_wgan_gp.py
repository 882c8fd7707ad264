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
def test_one_image_s_score_does_not_depend_on_the_others(tiny_gan, network, norm):
    critic = tiny_gan("wgan_gp", network=network, critic_norm=norm).discriminator
    images = torch.rand(4, 1, 16, 16)
    torch.testing.assert_close(critic(images)[:1], critic(images[:1]), rtol=1e-4, atol=1e-6)


def test_refusals_and_defaults():
    with pytest.raises(RefusedInput, match="gradient_penalty=-1"):
        WGANGP(gradient_penalty=-1.0)
    module = WGANGP()
    assert (module.n_critic, module.gradient_penalty) == (5, 10.0)
    assert module.generator_optimizer.options["betas"] == (0.0, 0.9)
    assert module.classified_as_real("discriminator", torch.zeros(3)) is None
