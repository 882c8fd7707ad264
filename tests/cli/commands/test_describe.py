import pytest

from lit_gans.cli.commands.describe import describe
from lit_gans.models.gan import GAN
from tests.gans import GANS

MIB = 2**20


def test_dense_networks_by_hand():
    latent, wide, narrow, pixels = 5, 32, 16, 3 * 8 * 8
    rows = describe(GAN(latent_dim=latent, generator_width=narrow, discriminator_width=wide, image_size=8, channels=3))
    products = {
        "generator": latent * narrow + narrow * narrow + narrow * pixels,
        "discriminator": pixels * wide + wide * wide + wide,
    }
    biases = {"generator": 2 * narrow + pixels, "discriminator": 2 * wide + 1}
    # what backward needs of one image: inputs, two hidden layers, and what tanh gave
    kept = {"generator": latent + 2 * narrow + pixels, "discriminator": pixels + 2 * wide}
    assert [row["network"] for row in rows] == ["generator", "discriminator"]
    for row in rows:
        name = row["network"]
        parameters = products[name] + biases[name]
        assert row == {
            "network": name,
            "parameters": parameters,
            "multiply_adds": products[name],
            "weights_mib": 4 * parameters / MIB,
            "training_mib": 16 * parameters / MIB,
            "activations_mib": 4 * kept[name] / MIB,
        }


SETTINGS = {"sngan": {"network": "resnet", "num_classes": 10, "image_size": 32}}


@pytest.mark.parametrize(("name", "settings"), [(name, SETTINGS.get(name, {})) for name in GANS])
def test_every_network_of_every_gan_is_described(tiny_gan, name, settings):
    module = tiny_gan(name, **settings)
    rows = describe(module)
    assert tuple(row["network"] for row in rows) == module.network_names
    for row in rows:
        parameters = [each for each in getattr(module, row["network"]).parameters() if each.requires_grad]
        assert row["parameters"] == sum(each.numel() for each in parameters)
        assert min(row["multiply_adds"], row["activations_mib"]) > 0


def test_the_frozen_classifier_of_projected_gan_stores_nothing_for_gradients_of_its_weights(tiny_gan):
    assert describe(tiny_gan("projected_gan"))[1]["activations_mib"] < 1  # otherwise 13


def test_the_command_makes_no_weight_and_no_folder(ran, tmp_path):
    out = ran("describe", "model=gan", "data.channels=1", f"model.generator_width={2**22}")
    assert "GAN, 64x64, 1 channels" in out
    assert sum(line.count("MiB") == 3 for line in out.splitlines()) == 2, "a row for each network"
    assert not list(tmp_path.iterdir())
