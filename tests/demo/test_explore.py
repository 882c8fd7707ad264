import numpy as np
import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.demo.app import Explorer, enlarged


def test_an_image_is_that_of_the_seed_enlarged(tiny_gan):
    module = tiny_gan("gan", channels=3)
    image = Explorer(module).image(4)
    assert (image.shape, image.dtype) == ((384, 384, 3), np.uint8)
    expected = module.sample(1, seed=4)[0].permute(1, 2, 0).mul(255).round().byte()
    assert np.array_equal(image[::24, ::24], expected.numpy())


def test_a_direction_a_class_and_truncation_change_the_image(tiny_gan):
    module = tiny_gan("gan", num_classes=10, generator_width=16)
    explorer = Explorer(module, num_directions=3)
    plain = explorer.image(1, label=2)
    assert np.array_equal(plain, explorer.image(1, label=2, amounts=(0.0, 0.0, 0.0)))
    moved = explorer.image(1, label=2, amounts=(0.0, 2.0))
    latent = module.latents(1, 1) + 2 * explorer.directions[1]
    expected = module.decode(latent, labels=torch.tensor([2]))[0, 0].mul(255).round().byte().numpy()
    assert np.array_equal(moved[::24, ::24, 0], expected)
    others = [moved, explorer.image(1, label=3), explorer.image(1, label=2, truncation=0.5)]
    assert not any(np.array_equal(plain, other) for other in others)


def test_a_walk_ends_at_its_seeds(tiny_gan):
    explorer = Explorer(tiny_gan("dcgan"))
    walk = explorer.walk(3, 8, steps=4)
    assert len(walk) == 4
    for image, seed in ((walk[0], 3), (walk[-1], 8)):
        assert np.abs(image.astype(int) - explorer.image(seed)).max() <= 1


def test_a_generator_without_directions_has_no_sliders(tiny_gan):
    module = tiny_gan("gan")
    module.generator = nn.Sequential(nn.Unflatten(1, (6, 1, 1)), nn.Upsample(16), nn.Conv2d(6, 1, 1))
    assert len(Explorer(module).directions) == 0
    Explorer(module).image(0)


@pytest.mark.parametrize("channels", [2, 6])
def test_other_channels_are_shown_side_by_side(tiny_gan, channels):
    image = Explorer(tiny_gan("gan", channels=channels)).image(0)
    assert image.shape == (384 // channels, 384, 3)


def test_images_are_enlarged_without_smoothing():
    images = torch.rand(2, 3, 100, 90)
    for image, large in zip(images, enlarged(images), strict=True):
        assert large.shape == (400, 360, 3)
        assert np.array_equal(large[3::4, ::4], image.permute(1, 2, 0).mul(255).round().byte().numpy())


def test_a_translator_is_refused_before_the_page_is_built(tiny_gan):
    with pytest.raises(RefusedInput, match="pix2pix generates images from images, not from random latents"):
        Explorer(tiny_gan("pix2pix"))
