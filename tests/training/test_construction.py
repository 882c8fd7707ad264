"""Networks of a GAN: built once, under their names, compiled and laid out as asked."""

import torch
from torch import nn

from lit_gans.training.adversarial import AdversarialModule
from tests.training.linear_gan import PLAIN, LinearGAN


def test_networks_are_built_once_by_the_constructor_from_the_module_s_own_seed(tiny_gan, random_images, fit):
    torch.manual_seed(1)
    first = tiny_gan(seed=5)
    assert [name for name, _ in first.named_children()] == ["generator", "discriminator"]
    weight = first.generator.layers[0].weight
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = tiny_gan(seed=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(weight, tiny_gan(seed=6).generator.layers[0].weight)


def test_the_memory_layout_changes_no_number(tiny_gan, random_images, fit):
    plain, last = (tiny_gan(channels=3, channels_last=flag, **PLAIN) for flag in (False, True))
    for module in (plain, last):
        fit(module, random_images(channels=3), max_steps=2)
    assert last.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain.state_dict(), last.state_dict(), rtol=1e-4, atol=1e-5)


def test_networks_built_without_the_context_get_their_layout_before_the_training(random_images, fit):
    class Plain(LinearGAN):
        def __init__(self, **kwargs):
            AdversarialModule.__init__(self, **kwargs)
            self.generator = nn.Sequential(nn.Unflatten(1, (6, 1, 1)), nn.ConvTranspose2d(6, 1, 16))
            self.discriminator = nn.Sequential(nn.Conv2d(1, 2, 16), nn.Flatten(), nn.Linear(2, 1))

    module = Plain(image_size=16, channels=1, latent_dim=6)
    fit(module, random_images(), max_steps=1)
    assert module.generator[1].weight.is_contiguous(memory_format=torch.channels_last)
