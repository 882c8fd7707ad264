"""The range of a loader's images, which nothing else would notice: metrics would be computed of other colors."""

import pytest
import torch
from torch.utils.data import DataLoader

from lit_gans.training.batch import doubt_about_range

IMAGES = torch.linspace(0, 1, 256).reshape(1, 1, 16, 16).repeat(8, 1, 1, 1)
RIGHT = {
    "in [-1, 1]": 2 * IMAGES - 1,
    "resized in half precision": (2.01 * IMAGES - 1.005).bfloat16(),
    "uint8": (255 * IMAGES).byte(),
    "points": 3 * torch.randn(8, 2, 1, 1),
}
WRONG = {"of ToTensor": (IMAGES, "from 0 to 1"), "in numbers of bytes": (255 * IMAGES, "from 0 to 255")}


@pytest.mark.parametrize("name", RIGHT)
def test_images_in_the_range_of_the_networks_raise_no_doubt(name):
    for data in (RIGHT[name], [RIGHT[name], torch.zeros(8)], {"image": RIGHT[name]}):
        assert doubt_about_range(data) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_training_says_once_that_images_have_another_range(name, tiny_gan, fit, caplog):
    images, said = WRONG[name]
    assert all(doubt_about_range(data) for data in (images, [images, torch.zeros(8)], {"image": images}))
    fit(tiny_gan(), DataLoader(images, batch_size=4), 4)
    (record,) = (record for record in caplog.records if "expect [-1, 1]" in record.message)
    assert f"the loader yields images {said}" in record.message
