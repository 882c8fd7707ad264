import torch
from torch import nn
from torch.nn import functional

from lit_gans.networks.projected import Projections


def test_projections_by_sums():
    torch.manual_seed(0)
    projections = Projections((3, 5, 2), 2)
    maps = [torch.randn(2, channels, side, side + 2) for channels, side in ((3, 8), (5, 4), (2, 2))]
    fine, middle, coarse = (
        torch.einsum("nchw,kc->nkhw", each, layer.weight[:, :, 0, 0])
        for each, layer in zip(maps, projections.of_channels, strict=True)
    )
    assert [each.shape[1] for each in (fine, middle, coarse)] == [2, 4, 8]

    def mixed(features, size, weight):
        larger = nn.Upsample(size, mode="bilinear")(features)
        windows = functional.unfold(larger, 3, padding=1).reshape(2, -1, 9, *size)
        return torch.einsum("nckhw,dck->ndhw", windows, weight.flatten(2))

    weights = [layer.weight for layer in projections.of_scales]
    last = mixed(coarse, (4, 6), weights[2])
    second = mixed(middle + last, (8, 10), weights[1])
    first = mixed(fine + second, (16, 20), weights[0])
    torch.testing.assert_close(projections(maps), [first, second, last], rtol=1e-4, atol=1e-5)
