import pytest
import torch
from torch import nn

from lit_gans.cli.describe import describe
from lit_gans.config.registry import gans
from lit_gans.models.gan import GAN
from lit_gans.networks.autoencoder import Attention
from lit_gans.networks.blocks import PooledConv2d, UpsampledConv2d
from lit_gans.networks.r3gan import Resample

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


def multiply_adds(network, forward):
    """Counts the products of every layer of a real network while it runs."""
    counted = []

    def count(layer, inputs, output):
        if isinstance(layer, nn.Linear):
            counted.append(layer.in_features * output.numel())
        elif isinstance(layer, Resample):
            counted.append((inputs[0] if layer.doubles else output).numel() * layer.kernel.numel())
        elif isinstance(layer, UpsampledConv2d):
            counted.append(inputs[0].numel() * layer.out_channels * 4 * 4)
        elif isinstance(layer, PooledConv2d):
            counted.append(output.numel() * layer.in_channels * 4 * 4)
        elif isinstance(layer, nn.ConvTranspose2d):
            counted.append(inputs[0].numel() * layer.weight[0].numel())
        elif isinstance(layer, Attention):
            positions, channels = output[0, 0].numel(), output.shape[1]
            counted.append(2 * positions**2 * channels)
        else:
            counted.append(output.numel() * layer.weight[0].numel())

    kinds = nn.Linear | nn.Conv2d | nn.ConvTranspose2d | Resample | Attention
    hooks = [layer.register_forward_hook(count) for layer in network.modules() if isinstance(layer, kinds)]
    network.eval()
    forward()
    for hook in hooks:
        hook.remove()
    return sum(counted)


CASES = [
    ("pix2pix", {}),
    ("cyclegan", {}),
    ("autoencoder_kl", {}),
    ("d2gan", {}),
    ("r3gan", {}),
    ("sngan", {"network": "resnet", "num_classes": 10, "image_size": 32}),
    ("wgan_gp", {"network": "resnet", "block": "inverted_residual"}),
]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_numbers_are_those_of_the_real_networks(tiny_gan, name, settings):
    module, described = tiny_gan(name, **settings), tiny_gan(name, **settings)
    rows = describe(described)
    assert tuple(row["network"] for row in rows) == module.network_names
    batch = {key: torch.zeros_like(value) for key, value in module.dummy_batch(1).items()}
    image = torch.zeros(1, 1, module.image_size, module.image_size)
    for row in rows:
        network = getattr(module, row["network"])
        assert row["parameters"] == sum(parameter.numel() for parameter in network.parameters())
        generates = row["network"] == "generator"
        products = multiply_adds(
            network,
            (lambda: module.generate(module.generator, batch))
            if generates
            else (lambda network=network: network(image, *module.condition(batch))),
        )
        assert row["multiply_adds"] == products
        assert row["weights_mib"] * MIB == pytest.approx(4 * row["parameters"])
        assert row["activations_mib"] > 0


def test_the_command_makes_no_weight(command):
    code, out, err = command("describe", "model=gan", f"model.generator_width={2**22}")
    assert (code, err) == (0, "counting the operations of GAN for one image\n")
    assert "GAN, 64x64" in out


def test_the_command_prints_a_row_for_each_network(command, tmp_path):
    sizes = ["data.image_size=16", "data.channels=1", "model.generator_width=8", "model.discriminator_width=8"]
    code, out, err = command("describe", "model=d2gan", *sizes)
    assert (code, err) == (0, "counting the operations of D2GAN for one image\n")
    module = gans()["d2gan"](image_size=16, channels=1, generator_width=8, discriminator_width=8)
    assert "D2GAN, 16x16, 1 channels" in out
    for name in module.network_names:
        (line,) = [line for line in out.splitlines() if name in line]
        assert f"{sum(parameter.numel() for parameter in getattr(module, name).parameters()):,}" in line
        assert line.count("MiB") == 3
    assert not list(tmp_path.iterdir()), "it leaves no folder"
