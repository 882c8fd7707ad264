"""Batches as the loop has them, and the range of a loader's images, which nothing else would notice."""

import pytest
import torch
from torch.utils.data import DataLoader

from lit_gans.training.batch import doubt_about_range, prepare_batch, split_batch

IMAGES = torch.linspace(0, 1, 256).reshape(1, 1, 16, 16).repeat(8, 1, 1, 1)
RIGHT = {
    "in [-1, 1]": 2 * IMAGES - 1,
    "resized in half precision": (2.01 * IMAGES - 1.005).bfloat16(),
    "uint8": (255 * IMAGES).byte(),
    "points": 3 * torch.randn(8, 2, 1, 1),
}
WRONG = {"of ToTensor": (IMAGES, "from 0 to 1"), "in numbers of bytes": (255 * IMAGES, "from 0 to 255")}


def test_batches_are_named_scaled_and_split():
    pixels = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).reshape(4, 1, 1, 1)
    batch = prepare_batch((pixels, torch.arange(4)), channels_last=True)
    torch.testing.assert_close(batch["image"].flatten(), torch.tensor([-1.0, -0.6, 1.0, -0.2]))
    microbatches = split_batch(batch, 2)
    assert [microbatch["label"].tolist() for microbatch in microbatches] == [[0, 1], [2, 3]]
    assert prepare_batch(pixels, False).keys() == {"image"}
    colors = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    assert prepare_batch(colors, True)["image"].is_contiguous(memory_format=torch.channels_last)
    assert prepare_batch(colors, False)["image"].is_contiguous()
    floats = torch.rand(2, 3, 4, 4) * 2 - 1
    assert torch.equal(prepare_batch({"image": floats}, True)["image"], floats), "only uint8 is scaled"
    assert (colors == 0).all(), "the loader's own images stay"


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
