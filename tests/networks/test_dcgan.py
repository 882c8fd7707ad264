import pytest
import torch

from lit_gans import compose
from lit_gans.config import resolve, to_class_path
from lit_gans.construct import construct
from lit_gans.errors import RefusedInput
from lit_gans.models.dcgan import DCGAN
from lit_gans.networks.dcgan import DCGANDiscriminator, DCGANGenerator, num_scales


def count(network):
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("image_size", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_shapes_and_range(image_size, channels):
    images = DCGANGenerator(7, channels, image_size, 2)(torch.randn(2, 7))
    assert images.shape == (2, channels, image_size, image_size)
    assert images.abs().max() <= 1
    assert DCGANDiscriminator(channels, image_size, 2)(images).shape == (2,)


@pytest.mark.parametrize("image_size", [8, 33, 48, 512])
def test_other_sizes_are_refused(image_size):
    with pytest.raises(RefusedInput, match="power of two from 16 to 256"):
        num_scales(image_size)


def test_the_scaling_study_has_its_exact_parameter_counts():
    config = resolve(compose("experiment=dcgan_scaling_study", "trainer.default_root_dir=x"))
    module = construct(to_class_path(config["model"]), "model")
    assert (module.image_size, module.channels) == (64, 3)
    assert (count(module.generator), count(module.discriminator)) == (3_823_555, 2_766_529)


def test_the_defaults_are_the_papers():
    module = DCGAN()
    assert module.generator.layers[0].out_channels == 1024
    assert [layer.out_channels for layer in module.generator.layers if hasattr(layer, "out_channels")][1:] == [
        512,
        256,
        128,
        3,
    ]
    weight = module.discriminator.layers[2].weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert module.generator_optimizer.betas == (0.5, 0.999)
    assert module.generator_optimizer.learning_rate == 2e-4
