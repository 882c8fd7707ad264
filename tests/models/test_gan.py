import pytest
import torch


@pytest.mark.parametrize("saturating", [False, True])
def test_losses_are_the_papers(tiny_gan, saturating):
    module = tiny_gan("gan", saturating=saturating)
    real, fake = torch.rand(2, 4, 1, 16, 16) * 2 - 1
    on_real, on_fake = (torch.sigmoid(module.discriminator(images)) for images in (real, fake))
    expected = -on_real.log().mean() - (1 - on_fake).log().mean()
    torch.testing.assert_close(module.discriminator_losses(real, fake, {})["discriminator"].loss, expected)
    expected = (1 - on_fake).log().mean() if saturating else -on_fake.log().mean()
    torch.testing.assert_close(module.generator_loss(fake, {}), expected)


def test_points_are_samples_as_they_are(tiny_gan):
    module = tiny_gan("gan", image_size=1, channels=2)
    latents = module.latents(5, seed=1)
    points = module.sample(5, seed=1)
    assert points.shape == (5, 2, 1, 1)
    torch.testing.assert_close(points, module.generator(latents).detach())
    with torch.no_grad():
        module.generator.layers[-3].bias.add_(7.0)
    assert module.sample(5).max() > 5, "no bounds"
