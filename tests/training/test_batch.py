"""Batches as the loop has them, and the range of a loader's images, which nothing else would notice."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from lit_gans import RefusedInput
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
def test_images_in_the_range_of_the_networks_give_no_warning(name):
    for data in (RIGHT[name], [RIGHT[name], torch.zeros(8)], {"image": RIGHT[name]}):
        assert doubt_about_range(data) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_training_says_once_that_images_have_another_range(name, tiny_gan, fit, caplog):
    images, said = WRONG[name]
    assert all(doubt_about_range(data) for data in (images, [images, torch.zeros(8)], {"image": images}))
    fit(tiny_gan(), DataLoader(images, batch_size=4), 4)
    (record,) = (record for record in caplog.records if "expect [-1, 1]" in record.message)
    assert f"the loader yields images {said}" in record.message


IMAGES_LAST = torch.zeros(4, 16, 16, 1)
ANOTHER = {
    "the names of Hugging Face": (
        {"pixel_values": 2 * IMAGES - 1, "labels": torch.zeros(8)},
        "a dict with pixel_values, labels, but without image: name the images 'image' and their classes 'label', for"
        " example {'image': batch['pixel_values'], 'label': batch['labels']}.",
    ),
    "img": ({"img": IMAGES}, "for example {'image': batch['img']}."),
    "images": ({"images": IMAGES, "id": torch.zeros(8)}, "for example {'image': batch['images']}."),
    "jpg": ({"jpg": IMAGES}, "for example {'image': batch['jpg']}."),
    "an unknown name": ({"front": IMAGES}, "a dict with front, but without image: name the images 'image'"),
    "a list of images": ({"image": [IMAGES[0], IMAGES[1]]}, "yields images of type Tensor: expected a tensor"),
    "arrays": ({"image": np.zeros((4, 16, 16, 1))}, "of type ndarray: expected a tensor (n, 1, height, width)"),
    "images of Pillow": ({"image": [Image.new("L", (16, 16))]}, "yields images of type Image: expected a tensor"),
    "integers": ((255 * IMAGES).long(), "images of torch.int64: expected uint8, or floats in [-1, 1]"),
    "channels last": (IMAGES_LAST, "(16, 16, 1), but the model expects (1, 16, 16): the channels are last: use"),
    "colors last": (IMAGES_LAST.expand(-1, -1, -1, 3), "the channels are last: use images.permute(0, 3, 1, 2)."),
    "no channels": (IMAGES_LAST[..., 0], "the channel axis is missing: use images[:, None]."),
    "one image": (IMAGES[0], "the batch axis is missing: set batch_size of the DataLoader, or use images[None]."),
    "one image, channels last": (IMAGES_LAST[0], "channels are last: use images.permute(2, 0, 1)[None]."),
    "colors": (IMAGES.expand(-1, 3, -1, -1), "set channels=3 of the model, or convert the images to one channel"),
    "another size": (IMAGES[..., :8], "(1, 16, 8), but the model expects (1, 16, 16): resize the images, or set"),
    "labels first": ((torch.zeros(8), IMAGES), "of shape (8,), but the model expects (1, 16, 16): expected a batch"),
}


def as_it_is(data):
    """A loader of one batch."""
    return DataLoader([data], batch_size=None, collate_fn=lambda batch: batch)


@pytest.mark.parametrize("name", ANOTHER)
def test_a_batch_that_is_named_or_laid_out_otherwise_is_refused_with_what_would_be_right(name, tiny_gan, fit):
    data, sentence = ANOTHER[name]
    with pytest.raises(RefusedInput) as refused:
        fit(tiny_gan(), as_it_is(data), 1)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ["pix2pix", "cyclegan"])
@pytest.mark.parametrize("side", ["input", "image"])
def test_both_images_of_a_translator_are_looked_at(name, side, tiny_gan):
    batch = {"input": torch.zeros(4, 1, 16, 16), "image": torch.zeros(4, 1, 16, 16)}
    tiny_gan(name).refuse_batch(batch)
    with pytest.raises(RefusedInput, match=r"channels are last: use images.permute\(0, 3, 1, 2\)") as refused:
        tiny_gan(name).refuse_batch(batch | {side: torch.zeros(4, 16, 16, 1)})
    assert f"yields images of {side} of shape (16, 16, 1)" in str(refused.value)


def test_names_of_files_beside_images_are_left_out_and_floats_of_numpy_are_converted(tiny_gan, fit):
    batch = {"image": torch.from_numpy(np.linspace(-1, 1, 8 * 256).reshape(8, 1, 16, 16)), "path": ["a"] * 8}
    assert {name: value.dtype for name, value in prepare_batch(batch, False).items()} == {"image": torch.float32}
    assert fit(tiny_gan(), as_it_is(batch), 1).global_step == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_of_16_bits_become_those_of_the_networks(dtype):
    assert prepare_batch({"image": torch.zeros(1, 3, 2, 2, dtype=dtype)}, False)["image"].dtype == torch.float32
