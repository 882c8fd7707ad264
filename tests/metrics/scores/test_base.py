"""What every score shares: images or features in, states of several ranks, and what a checkpoint does not hold."""

import pickle

import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.extractors.base import Features, ModuleExtractor
from tests.metrics.cells import Pixels, images


class Mean(nn.Module):
    """Mean and largest value of images in [0, 1]."""

    def forward(self, images):
        assert images.max() <= 1
        return torch.stack([images.mean((1, 2, 3)), images.amax((1, 2, 3))], dim=1)


@pytest.fixture
def fid():
    fid = FrechetInceptionDistance(Pixels(), reset_real_features=False)
    fid.update(images(100, 0), real=True)
    fid.update(images(61, 1), real=False)
    return fid


def test_images_floats_and_extracted_features_are_the_same(fid):
    floats, extracted = FrechetInceptionDistance(Pixels(), normalize=True), FrechetInceptionDistance()
    for given, real in ((images(100, 0), True), (images(61, 1), False)):
        floats.update(given / 255, real)
        extracted.update(Features(*Pixels()(given)), real)
    assert fid.compute() == floats.compute() == extracted.compute()


def test_any_module_extracts_and_needs_no_stated_widths(fid):
    class Plain(nn.Module):
        def forward(self, images):
            assert images.dtype == torch.uint8
            return images.flatten(1).float() / 10

    other = FrechetInceptionDistance(Plain(), input_img_size=(1, 2, 2))
    other.update(images(100, 0), real=True)
    other.update(images(61, 1), real=False)
    assert other.compute() == fid.compute()


def test_a_module_that_is_no_extractor_takes_images_as_they_are_given():
    seen = []

    class Seen(nn.Module):
        def forward(self, images):
            seen.append(images)
            return images.flatten(1).float()

    for normalize, given in ((False, images(20, 0)), (True, images(20, 0) / 255)):
        one = FrechetInceptionDistance(Seen(), normalize=normalize, input_img_size=(3, 2, 2))
        seen.clear()
        one.update(given.expand(-1, 3, -1, -1), real=True)
        torch.testing.assert_close(seen, [given.expand(-1, 3, -1, -1)], rtol=0, atol=0)
    scaled, adapted = (FrechetInceptionDistance(net, normalize=True) for net in (Mean(), ModuleExtractor(Mean())))
    for score in (scaled, adapted):
        score.update(images(100, 0) / 255, real=True)
        score.update(images(61, 1) / 255, real=False)
    assert scaled.compute() == adapted.compute() > 0


def test_reset_keeps_the_real_images_and_state_dicts_round_trip(fid):
    value = fid.compute()
    fid.reset()
    fid.update(images(61, 1), real=False)
    assert fid.compute() == value
    fid.persistent(True)
    other = pickle.loads(pickle.dumps(FrechetInceptionDistance(Pixels())))
    other.persistent(True)
    other.load_state_dict(fid.state_dict())
    other.update(images(0, 1), real=False)
    assert other.compute() == value
    other.reset()
    other.update(images(5, 0), real=False)
    with pytest.raises(RefusedInput, match="0 image has no covariance"):
        other.compute()


def test_an_extractor_is_no_part_of_the_module_that_holds_a_metric():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, images):
            return self.layer(images.flatten(1).float())

    module = nn.Module()
    module.fid = FrechetInceptionDistance(Linear(), input_img_size=(1, 2, 2))
    assert not list(module.parameters())
    assert not module.state_dict()


def test_refusals():
    with pytest.raises(RefusedInput, match="give an extractor"):
        FrechetInceptionDistance().update(images(4, 0), real=True)
    with pytest.raises(RefusedInput, match=r"expected uint8 \(n, c, h, w\)"):
        FrechetInceptionDistance(Pixels()).update(images(4, 0).float(), real=True)
