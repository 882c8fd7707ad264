"""What every score shares: images or features in, states of several ranks, and what a checkpoint does not hold."""

import pickle

import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.scores.base import Features
from tests.metrics.cells import Pixels, images


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
