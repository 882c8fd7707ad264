import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.networks import build_discriminator, build_generator

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
