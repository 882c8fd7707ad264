"""Weights in networks of other sizes, and layers that stay frozen."""

import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.spectral import spectrally_normalized
from lit_gans.training.transfer import transfer

GRAY = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_equal_networks_are_copied_and_new_layers_of_other_networks_are_reported(tiny_gan):
    theirs, same, deeper = tiny_gan(seed=1), tiny_gan(seed=2), tiny_gan(seed=3, image_size=32)
    found = transfer(same.generator, theirs.generator.state_dict())
    assert (found.share, found.left, found.adapted) == (1.0, [], [])
    torch.testing.assert_close(same.generator.state_dict(), theirs.generator.state_dict(), rtol=0, atol=0)
    found = transfer(deeper.discriminator, theirs.discriminator.state_dict())
    assert 0 < found.share < 1
    assert "layers.0.weight" in found.loaded
    assert "layers.5.weight" in found.left
    assert f"{found.share:.0%} of the weights; new: layers.5.weight" in str(found)
    assert transfer(same.generator, {}).share == 0


@pytest.mark.parametrize("wrap", [lambda network: network, spectrally_normalized])
def test_gray_networks_of_color_ones_see_and_make_the_same_images(wrap):
    color, gray = (wrap(nn.Sequential(nn.Conv2d(c, 5, 4, 2, 1), nn.ConvTranspose2d(5, c, 4, 2, 1))) for c in (3, 1))
    for network in (color, gray):
        network.eval()
    found = transfer(gray, color.state_dict())
    assert {name.partition(".")[0] for name in found.adapted} == {"0", "1"}
    if wrap is spectrally_normalized:
        assert {name.rpartition(".")[2] for name in found.left} <= {"left", "right"}, "singular vectors begin anew"
    else:
        assert found.share == 1
        torch.testing.assert_close(gray[0](GRAY), color[0](GRAY.expand(-1, 3, -1, -1)))
        torch.testing.assert_close(gray(GRAY), color(GRAY.expand(-1, 3, -1, -1)).mean(1, keepdim=True))


def test_color_networks_of_gray_ones_see_the_mean_and_make_gray_images():
    gray, color = (nn.Sequential(nn.Conv2d(c, 5, 4, 2, 1), nn.ConvTranspose2d(5, c, 4, 2, 1)) for c in (1, 3))
    assert transfer(color, gray.state_dict()).share == 1
    images = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(color(images), gray(images.mean(1, keepdim=True)).expand(-1, 3, -1, -1))


@pytest.mark.parametrize(("name", "num"), [("sngan", 2), ("d2gan", 1), ("r3gan", 3)])
def test_frozen_layers_keep_their_weights_and_the_others_learn(tiny_gan, random_images, fit, name, num):
    module = tiny_gan(name, n_critic=1, freeze_discriminator=num)
    before = {key: value.clone() for key, value in module.named_parameters()}
    fit(module, random_images(), max_steps=2)
    for discriminator in module.discriminator_names:
        own = [key for key in before if key.startswith(f"{discriminator}.")]
        frozen = [key for key in own if not dict(module.named_parameters())[key].requires_grad]
        moved = [key for key in own if not torch.equal(before[key], dict(module.named_parameters())[key])]
        assert frozen
        assert own[: len(frozen)] == frozen, "the layers at the images"
        assert moved
        assert not {*frozen} & {*moved}


def test_a_discriminator_that_could_not_learn_is_refused(tiny_gan):
    with pytest.raises(RefusedInput, match=r"freeze_discriminator=2 must be less than .* of the discriminator, 2:"):
        tiny_gan(freeze_discriminator=2)
    with pytest.raises(RefusedInput, match="freeze_discriminator=-1"):
        tiny_gan(freeze_discriminator=-1)
