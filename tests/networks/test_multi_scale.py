"""Discriminators at several resolutions, of 1, 2 and 3 dimensions."""

import pytest
import torch
from torch.nn import functional

from lit_gans.networks.multi_scale import MultiScale
from lit_gans.networks.patchgan import PatchGAN

POOLS = functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_each_discriminator_receives_data_and_condition_at_half_the_resolution(dims):
    single = PatchGAN(1, 2, 32, width=4, depth=2, dims=dims, features=True)
    data, condition = torch.randn(2, 2, *[32] * dims), torch.randn(2, 1, *[32] * dims)
    full, half = MultiScale([single, single])(data, condition)
    pooled = (POOLS[dims - 1](tensor, 3, 2, 1, False, False) for tensor in (data, condition))
    for output, expected in ((full, single(data, condition)), (half, single(*pooled))):
        torch.testing.assert_close(output.scores, expected.scores)
        assert output.scores.dim() == dims + 1
        assert len(output.features) == 3
    assert full.features[0].shape[-1] == 2 * half.features[0].shape[-1]


def test_labels_are_passed_on():
    class Labeled(PatchGAN):
        def forward(self, images, labels):
            return super().forward(images) + labels[:, None, None]

    discriminator = MultiScale([Labeled(0, 1, 32, width=4, depth=2)] * 2)
    images = torch.randn(2, 1, 32, 32)
    for one, other in zip(
        discriminator(images, torch.tensor([3.0, 4.0])), discriminator(images, torch.zeros(2)), strict=True
    ):
        torch.testing.assert_close((one - other).mean((1, 2)), torch.tensor([3.0, 4.0]))
