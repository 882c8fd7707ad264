import pytest
import torch
from jaxtyping import config

from lit_gans.common.errors import RefusedInput
from lit_gans.latents.projection import project, pyramid_distance


def test_the_distance_is_the_mean_difference_at_every_scale():
    one, other = torch.rand(2, 3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    blocks = lambda images, size: images.unfold(2, size, size).unfold(3, size, size).mean((-1, -2))  # noqa: E731
    expected = sum((blocks(one, size) - blocks(other, size)).abs().mean((1, 2, 3)) for size in (1, 2, 4))
    torch.testing.assert_close(pyramid_distance(one, other), expected)
    assert pyramid_distance(one, one).tolist() == [0, 0, 0]


def test_the_distances_are_those_of_decoded_latents_also_with_map_noise(tiny_gan):
    module = tiny_gan("projected_gan")
    for layer in module.generator.modules():
        if getattr(layer, "noise_weight", None) is not None:
            torch.nn.init.ones_(layer.noise_weight)
    targets = torch.rand(3, *module.image_shape)
    latents, distances = project(module, targets, steps=1, starts=2)
    assert torch.equal(pyramid_distance(module.decode(latents), targets), distances)


@pytest.mark.runs
@pytest.mark.parametrize("num_classes", [0, 10])
def test_finds_images_that_the_generator_can_make(tiny_gan, num_classes):
    module = tiny_gan("gan", num_classes=num_classes, generator_width=32)
    labels = torch.tensor([3, 1, 4]) if num_classes else None
    targets = module.decode(module.latents(3, seed=5), labels=labels)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    latents, distances = project(module, targets, labels=labels, steps=200, prior=0.0)
    assert latents.shape == (3, 6)
    assert not latents.requires_grad
    assert distances.max() < 0.02
    torch.testing.assert_close(pyramid_distance(module.decode(latents, labels=labels), targets), distances)
    again, _ = project(module, targets, labels=labels, steps=200, prior=0.0)
    assert torch.equal(again, latents), "the seed alone decides"
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)
    assert module.generator.training
    assert all(parameter.requires_grad for parameter in module.generator.parameters())


def test_each_image_begins_with_the_best_start(tiny_gan):
    module = tiny_gan("gan")
    starts = module.latents(8, seed=2)
    found, _ = project(module, module.decode(starts[[5, 3]]), steps=1, starts=8, lr=0.0, seed=2)
    assert torch.equal(found, starts[[5, 3]])


def test_the_prior_pulls_latents_to_the_origin(tiny_gan):
    module = tiny_gan("gan")
    targets = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    free, typical = (project(module, targets, steps=50, prior=prior)[0] for prior in (0.0, 10.0))
    assert typical.norm() < 0.5 * free.norm()


def test_images_of_another_size_are_refused(tiny_gan):
    with pytest.raises(
        RefusedInput, match=r"the images have shape \(3, 16, 16\), but the model generates \(1, 16, 16\): resize"
    ):
        project(tiny_gan(), torch.zeros(2, 3, 16, 16))


def test_integers_and_labels_that_are_no_classes_are_refused_as_are_translators(tiny_gan, monkeypatch):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    targets = torch.zeros(2, 1, 16, 16)
    with pytest.raises(RefusedInput, match=r"a tensor of torch\.uint8: expected floats"):
        project(tiny_gan(), targets.byte())
    with pytest.raises(RefusedInput, match="numbers from 1 to 3, but the model has num_classes=3"):
        project(tiny_gan(num_classes=3), targets, labels=torch.tensor([1, 3]))
    with pytest.raises(RefusedInput, match="pix2pix generates images from images, not from random latents"):
        project(tiny_gan("pix2pix"), targets)
