import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.paired_l1 import PairedL1


def test_both_scales_and_any_layout_have_the_mean_over_all_values():
    generator = torch.Generator().manual_seed(0)
    images, targets = torch.randint(0, 256, (2, 30, 3, 4, 5), generator=generator, dtype=torch.uint8)
    expected = (images.double() - targets.double()).abs().mean().item() / 255
    as_floats = images.float() / 255
    for given in (images, as_floats, as_floats.to(memory_format=torch.channels_last)):
        metric = PairedL1()
        for index in torch.arange(30).split(7):
            metric.update(given[index], targets[index])
        assert metric.compute().item() == pytest.approx(expected, rel=1e-6)


def test_images_that_are_not_finite_have_no_distance():
    metric = PairedL1()
    metric.update(torch.full((1, 1, 2, 2), torch.nan), torch.zeros(1, 1, 2, 2))
    assert metric.compute().isnan()


@pytest.mark.parametrize("value", [-0.1, 1.1, 255.0])
def test_floats_of_another_range_are_refused(value):
    images, targets = torch.full((1, 1, 2, 2), value), torch.zeros(1, 1, 2, 2)
    for pair in ((images, targets), (targets, images)):
        with pytest.raises(RefusedInput, match=r"expected \[0, 1\]"):
            PairedL1().update(*pair)


def test_targets_of_another_shape_are_refused():
    with pytest.raises(RefusedInput, match="expected the same shape"):
        PairedL1().update(torch.zeros(2, 1, 4, 4), torch.zeros(1, 1, 4, 4))


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_images_of_other_types_are_refused(kind):
    with pytest.raises(RefusedInput, match=rf"Images are {kind}, expected uint8, or floats in"):
        PairedL1().update(torch.ones(1, 1, 2, 2).to(kind), torch.zeros(1, 1, 2, 2))
