"""Sources in memory are copied to a GPU if they fit there, and serve the same images."""

import pytest
import torch

from lit_gans.data import base
from lit_gans.data.base import ImageData, PairedData
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.paired import DigitEdges
from lit_gans.data.sources.points import Ring
from lit_gans.data.sources.stacked_digits import StackedDigits
from tests.data.conftest import steps

COLUMNS = torch.arange(80, dtype=torch.uint8).view(20, 1, 1, 4).expand(20, 1, 4, 4)  # every pixel row tells the image

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


class Mirrored(ImageData):
    flip = True

    def load(self):
        return COLUMNS, torch.arange(20)


class MirroredPairs(PairedData):
    flip = True

    def pairs(self, held_out):
        return {"input": COLUMNS + 100, "image": COLUMNS}


@pytest.mark.parametrize("source", [Mirrored, MirroredPairs])
def test_a_source_in_memory_with_flip_serves_mirror_images_and_mirrors_both_images_of_a_pair(source):
    (step,) = source(image_size=4, batch_size=20).train_dataloader()
    mirrored = step["image"][:, 0, 0, 0] > step["image"][:, 0, 0, 3]
    assert 3 < mirrored.sum() < 17
    expected = torch.where(mirrored[:, None, None, None], step["image"].flip(-1), step["image"])
    assert torch.equal(expected.unique(dim=0), COLUMNS)
    assert torch.equal(step.get("input", step["image"] + 100), step["image"] + 100)
