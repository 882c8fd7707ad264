"""The multi-period discriminator of HiFi-GAN."""

import torch

from lit_gans.networks.multi_period import MultiPeriod


def test_each_score_depends_only_on_samples_of_one_phase():
    torch.manual_seed(0)
    (discriminator,) = MultiPeriod(periods=(3,), width=2).discriminators
    wave = torch.randn(1, 1, 900, requires_grad=True)
    scores = discriminator(wave).scores.unflatten(1, (-1, 3))  # one column for each phase
    (gradient,) = torch.autograd.grad(scores[..., 1].sum(), wave)
    assert {index % 3 for index in gradient[0, 0].nonzero().flatten().tolist()} == {1}


def test_a_length_that_the_period_does_not_divide_is_padded_by_reflection():
    torch.manual_seed(0)
    discriminator = MultiPeriod(periods=(5,), width=2)
    wave = torch.randn(2, 1, 902)
    padded = torch.cat([wave, wave[..., -4:-1].flip(-1)], -1)
    torch.testing.assert_close(discriminator(wave)[0].scores, discriminator(padded)[0].scores)


def test_the_papers_widths():
    """The code has 32, 128, 512, 1,024 and 1,024 channels, and one score; each output channel has a norm."""
    discriminator = MultiPeriod()
    assert [part.period for part in discriminator.discriminators] == [2, 3, 5, 7, 11]
    convolutions = [*discriminator.discriminators[0].layers, discriminator.discriminators[0].last]
    assert [layer.out_channels for layer in convolutions] == [32, 128, 512, 1024, 1024, 1]
    assert [layer.stride[0] for layer in convolutions] == [3, 3, 3, 3, 1, 1]
    weights = sum(layer.weight.numel() + 2 * layer.out_channels for layer in convolutions)
    assert sum(each.numel() for each in discriminator.parameters()) == 5 * weights
    features = discriminator(torch.randn(1, 1, 256))[0].features
    assert [feature.shape[1] for feature in features] == [32, 128, 512, 1024, 1024, 1]
