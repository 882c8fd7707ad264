"""The residual networks of R3GAN: one rule for widths and precision, a start near the identity, bilinear resampling."""

import pytest
import torch

from lit_gans.networks.r3gan import R3GANDiscriminator, R3GANGenerator, Resample, _Block

WIDTHS = {  # coarsest first, as in the authors' train.py; 16 and 128 follow the same rule
    16: [768] * 3,
    32: [768] * 4,
    64: [768] * 4 + [384],
    128: [768] * 4 + [384, 192],
    256: [768] * 4 + [384, 192, 96],
}


def stage_widths(network):
    return [next(layer for layer in stage if isinstance(layer, _Block)).expand.in_channels for stage in network.stages]


@pytest.mark.parametrize("size", WIDTHS)
def test_widths_follow_from_the_size(size):
    with torch.device("meta"):
        generator, discriminator = R3GANGenerator(64, 3, size), R3GANDiscriminator(3, size)
    assert stage_widths(generator) == stage_widths(discriminator)[::-1] == WIDTHS[size]


def test_stages_halve_from_any_size_on():
    for until, widths in {4: [64, 32, 16, 8], 8: [32, 32, 16, 8], 64: [8] * 4}.items():
        generator = R3GANGenerator(64, 3, 32, width=8, constant_until=until)
        discriminator = R3GANDiscriminator(3, 32, width=8, constant_until=until)
        assert stage_widths(generator) == stage_widths(discriminator)[::-1] == widths
    with torch.device("meta"):
        assert stage_widths(R3GANGenerator(64, 3, 32, constant_until=4)) == [768, 384, 192, 96]


def test_every_block_starts_as_the_identity_with_the_variances_of_the_paper():
    torch.manual_seed(0)
    network = R3GANGenerator(64, 3, 32, width=256)
    block = network.stages[1][1]
    features = torch.randn(2, 256, 8, 8)
    assert torch.equal(block(features), features)
    gain = (2 / 1.04) ** 0.5 * 8**-0.25  # four stages of two blocks
    assert block.expand.weight.std().item() == pytest.approx(gain / 16, rel=0.02)
    assert block.mix.weight.std().item() == pytest.approx(gain / (16 * 9) ** 0.5, rel=0.02)
    assert network.to_image.weight.std().item() == pytest.approx(1 / 16, rel=0.1)
    assert block.mix.groups == 32


def test_resampling_is_bilinear_with_zeros_outside():
    images = torch.rand(2, 3, 6, 6)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    doubled = torch.nn.functional.interpolate(padded, scale_factor=2, mode="bilinear")[:, :, 2:-2, 2:-2]
    torch.testing.assert_close(Resample(doubles=True)(images), doubled)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    halved = torch.nn.functional.interpolate(padded, scale_factor=0.5, mode="bilinear", antialias=True)
    torch.testing.assert_close(Resample(doubles=False)(images), halved[:, :, 1:-1, 1:-1])


def test_only_the_finest_stages_compute_in_half_precision_and_only_under_autocast():
    torch.manual_seed(0)
    generator, discriminator = R3GANGenerator(6, 3, 128, width=4), R3GANDiscriminator(3, 128, width=4)
    seen = {}
    for network in (generator, discriminator):
        for index, stage in enumerate(network.stages):
            stage[-1].register_forward_hook(
                lambda layer, inputs, output, key=(network, index): seen.__setitem__(key, output.dtype)
            )
    expected = [False, False, True, True, True, True]
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            discriminator(generator(torch.randn(2, 6)))
        found = [seen[generator, index] == torch.bfloat16 for index in range(6)]
        assert found == [half and each for each in expected]
        found = [seen[discriminator, index] == torch.bfloat16 for index in range(6)]
        assert found == [half and each for each in expected[::-1]]
