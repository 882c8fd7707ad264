import json
from functools import partial

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import sides
from lit_gans.networks import build_discriminator, build_generator
from lit_gans.networks.blocks import coarsest_map
from lit_gans.networks.unet import UNet

SMALL = {"channels": 1, "image_size": 16, "width": 4}


@pytest.mark.parametrize(
    ("build", "network", "option"),
    [
        (build_generator, "resnet", {"single_norm": True}),
        (build_discriminator, "resnet", {"top_width": 3}),
        (build_discriminator, "r3gan", {"norm": "layer"}),
    ],
)
def test_an_option_that_a_network_lacks_is_refused(build, network, option):
    """It was dropped in silence."""
    ((name, value),) = option.items()
    latents = {"latent_dim": 6} if build is build_generator else {}
    with pytest.raises(RefusedInput, match=f"{name}={value}: the {network} networks have no such option"):
        build(network, **latents, **SMALL, **option)
    without = "none" if name == "norm" else 0
    build(network, **latents, **SMALL, **{name: without})


@pytest.mark.parametrize(
    ("network", "wrong", "nearest"),
    [
        ("dcgan", 8, "16"),
        ("dcgan", 33, "32"),
        ("resnet", (50, 81), r"\[48,80\]"),
        ("resnet", (127, 150), r"\[128,160\]"),  # which is doubled once more than 127 would be
        ("r3gan", (160, 90), r"\[160,96\]"),
        ("unet", 1, "16"),
        ("unet", (100, 152), r"\[96,160\]"),
    ],
)
def test_other_sizes_are_refused_with_the_nearest_that_is_possible(network, wrong, nearest):
    for build in (build_generator, build_discriminator):
        latents = {"latent_dim": 2} if build is build_generator else {}
        build = partial(build, network, **latents) if network != "unet" else partial(UNet, 1)
        with pytest.raises(RefusedInput, match=f"the {network} .* nearest size is {nearest}[;.]") as refused:
            build(channels=1, image_size=wrong)
        assert f"image_size={wrong}".replace(" ", "").replace("(", "[").replace(")", "]") in str(refused.value)
        possible = json.loads(nearest.replace("\\", ""))
        build(channels=1, image_size=possible if isinstance(possible, int) else tuple(possible), width=8)


@pytest.mark.parametrize("network", ["dcgan", "resnet", "r3gan", "mlp", "fastgan"])
@pytest.mark.parametrize("size", [16, 40, 48, 64, 128, (16, 24), (96, 48), (48, 80), (32, 80)])
def test_images_have_their_size_and_range_and_every_pixel_is_seen(network, size):
    torch.manual_seed(0)
    generator = build_generator(network, latent_dim=6, channels=2, image_size=size, width=4)
    discriminator = build_discriminator(network, channels=2, image_size=size, width=4)
    images = generator(torch.randn(3, 6)).detach().requires_grad_()
    assert images.shape == (3, 2, *sides(size))
    assert network in ("r3gan", "fastgan") or images.abs().max() <= 1
    scores = discriminator(images)
    assert scores.shape == (3,)
    (gradient,) = torch.autograd.grad(scores.sum(), images)
    assert gradient.abs().sum((0, 1)).all()


@pytest.mark.parametrize("network", ["dcgan", "resnet", "r3gan", "mlp"])
def test_a_score_depends_on_the_class(network):
    torch.manual_seed(0)
    discriminator = build_discriminator(network, **SMALL, num_classes=3)
    images = torch.randn(1, 1, 16, 16).expand(3, -1, -1, -1)
    assert discriminator(images, torch.arange(3)).unique().numel() == 3


def test_the_coarsest_map_by_hand():
    expected = {16: (4, 4, 2), 48: (6, 6, 3), 64: (4, 4, 4), 96: (6, 6, 4), (96, 160): (6, 10, 4), (64, 32): (8, 4, 3)}
    assert {size: coarsest_map(size, "dcgan") for size in expected} == {
        size: ((height, width), doublings) for size, (height, width, doublings) in expected.items()
    }
