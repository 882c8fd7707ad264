import torch
from torch import nn

from lit_gans.networks.projected import Head, Projections


def test_projections_by_sums():
    torch.manual_seed(0)
    projections = Projections((3, 5, 2), 2)
    maps = [torch.randn(2, channels, side, side + 2) for channels, side in ((3, 8), (5, 4), (2, 2))]

    def mixed(features, layer):
        return torch.einsum("nchw,kc->nkhw", features, layer.weight[:, :, 0, 0]) + layer.bias[:, None, None]

    fine, middle, coarse = map(mixed, maps, projections.of_channels)
    assert [each.shape[1] for each in (fine, middle, coarse)] == [2, 4, 8]

    def upsampled(features, size):
        return nn.Upsample(size, mode="bilinear", align_corners=True)(features)

    last = mixed(upsampled(coarse, (4, 6)), projections.of_scales[2])
    second = mixed(upsampled(middle + last, (8, 10)), projections.of_scales[1])
    first = mixed(upsampled(fine + second, (16, 20)), projections.of_scales[0])
    torch.testing.assert_close(projections(maps), [first, second, last], rtol=1e-4, atol=1e-5)


def test_a_head_has_no_bias_that_moves_all_scores():
    assert not any("bias" in name and "layers.1" not in name for name, _ in Head(2, 16, 16, [4]).named_parameters())
