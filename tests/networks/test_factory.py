from functools import partial

import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.networks import build_discriminator, build_generator
from lit_gans.networks.unet import UNet

SMALL = {"channels": 1, "image_size": 16, "width": 4}


@pytest.mark.parametrize(
    ("build", "network", "option"),
    [
        (build_generator, "mlp", {"dense_stem": True}),
        (build_generator, "resnet", {"single_norm": True}),
        (build_discriminator, "resnet", {"top_width": 3}),
        (build_discriminator, "r3gan", {"norm": "layer"}),
        (build_discriminator, "mlp", {"depht": 3}),
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
    ("name", "settings", "sentence"),
    [
        ("wgan_gp", {"network": "r3gan", "critic_norm": "layer"}, "norm=layer: the r3gan networks"),
        ("r3gan", {"network": "dcgan", "group_width": 4}, "group_width and constant_until: the dcgan networks"),
    ],
)
def test_a_gan_refuses_options_of_other_networks(tiny_gan, name, settings, sentence):
    with pytest.raises(RefusedInput, match=f"{sentence} have no such option"):
        tiny_gan(name, **settings)


def test_options_that_are_none_have_the_defaults_of_the_network():
    network = build_generator("mlp", latent_dim=6, channels=1, image_size=16, width=None)
    assert network.layers[0].out_features == 128


@pytest.mark.parametrize(
    ("network", "sizes", "wrong"),
    [
        ("dcgan", "16, 32, 48, 64, 96, 128, 256", (8, 33, 512)),
        ("resnet", "16, 32, 48, 64, 128, 256", (8, 96)),
        ("r3gan", "16, 32, 64, 128, 256", (48,)),
        ("unet", "16, 32, 64, 128, 256, 512", (1, 48, 1024)),
    ],
)
def test_other_sizes_are_refused_with_the_known_ones(network, sizes, wrong):
    for size in wrong:
        for build in (build_generator, build_discriminator):
            latents = {"latent_dim": 2} if build is build_generator else {}
            build = partial(build, network, **latents) if network != "unet" else partial(UNet, 1)
            with pytest.raises(RefusedInput, match=f"image_size={size}: the {network} networks support {sizes} pixels"):
                build(channels=1, image_size=size)
