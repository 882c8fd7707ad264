"""Sources in memory are copied to a GPU if they fit there, and serve the same images."""

import pytest
import torch

from lit_gans.data import base
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.paired import DigitEdges
from lit_gans.data.sources.points import Ring
from lit_gans.data.sources.stacked_digits import StackedDigits
from tests.data.conftest import steps

SOURCES = {
    "digits": lambda: Digits(batch_size=1000),
    "pairs": lambda: DigitEdges(batch_size=1000),
    "points": lambda: Ring(num_points=5000, batch_size=1000),
    "stacked": lambda: StackedDigits(num_images=5000, batch_size=1000),
}


@pytest.mark.parametrize("source", SOURCES)
def test_images_on_the_device_are_those_in_memory(monkeypatch, source):
    expected = [*steps(SOURCES[source](), range(2))]
    asked = []
    monkeypatch.setattr(base, "fits_on", lambda device, num_bytes: asked.append(num_bytes) or True)
    data = SOURCES[source]()
    served = [*steps(data, range(2))]
    assert {*next(iter(data.train_dataloader()))} == {"rows"}, "all that is copied in an iteration"
    assert len(served) == len(expected) >= 8
    for one, other in zip(served, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    dataset = data.dataset
    images = dataset.digits if source == "stacked" else dataset.images
    assert asked[0] >= images.nbytes + dataset.labels.nbytes
    moved = dataset.to(torch.device("meta"))
    assert moved.labels.device.type == "meta"
    assert dataset.labels.device.type == "cpu", "metrics read the images there"


def test_half_of_the_free_memory_of_a_gpu_is_enough(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (200, 1000))
    assert base.fits_on(torch.device("cuda"), 100)
    assert not base.fits_on(torch.device("cuda"), 101)
    assert not base.fits_on(torch.device("cpu"), 1)
