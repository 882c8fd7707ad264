"""Any number of channels, 16 bits and floats: nothing is reduced to 8 bits where more is asked for."""

import re

import numpy as np
import png
import pytest
import tifffile
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import Frame, viewable
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder

RNG = np.random.default_rng(0)


def write_png(path, values):
    """A PNG of 16 bits with 1 to 4 channels, which Pillow writes only where it is gray."""
    png.from_array(
        values.reshape(len(values), -1), {1: "L;16", 2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}[values.shape[2]]
    ).save(path)


WRITERS = {
    "a.npy": np.save,
    "first.npy": lambda path, values: np.save(path, np.moveaxis(values, -1, 0)),
    "a.tif": lambda path, values: tifffile.imwrite(path, values, photometric="minisblack"),
    "planes.tiff": lambda path, values: tifffile.imwrite(path, np.moveaxis(values, -1, 0), photometric="minisblack"),
    "a.png": write_png,
}


def folder(path, cache, **settings):
    return Folder(str(path), **{"image_size": (8, 10), "cache": str(cache), "dtype": "float32", **settings})


@pytest.mark.parametrize("channels", [1, 4, 12])
@pytest.mark.parametrize("name", WRITERS)
def test_16_bits_keep_every_value(tmp_path, name, channels):
    if name.endswith(".png") and channels > 4:
        pytest.skip("a PNG has four channels at most")
    values = RNG.integers(0, 65536, (8, 10, channels)).astype(np.uint16)
    (tmp_path / "in").mkdir()
    WRITERS[name](tmp_path / "in" / name, values)
    data = folder(tmp_path / "in", tmp_path / "cache", channels=channels)
    images = data.packed.images
    assert (images.dtype, tuple(images.shape)) == (torch.float32, (1, channels, 8, 10))
    found = (images[0].double() + 1) / 2 * 65535
    assert np.array_equal(found.round().numpy(), np.moveaxis(values, -1, 0))
    assert torch.equal(folder(tmp_path / "in", tmp_path / "cache", channels=channels).packed.images, images), "reopened"
    data.packed.verify()
    assert data.dataset[torch.tensor([0])]["image"].dtype == torch.float32
    (in_8,) = data.real_batches()
    assert in_8.dtype == torch.uint8
    assert np.abs(in_8[0].numpy() - np.moveaxis(values, -1, 0) / 257).max() <= 0.51


def test_values_are_mapped_from_their_range_and_those_outside_are_counted(tmp_path):
    np.save(tmp_path / "a.npy", np.linspace(-10, 30, 80, dtype=np.float32).reshape(8, 10))
    np.save(tmp_path / "b.npy", np.full((8, 10), 50.0))
    data = folder(tmp_path, tmp_path / "cache", channels=1, value_range=(-10.0, 30.0))
    expected = torch.linspace(-1, 1, 80).reshape(8, 10)
    torch.testing.assert_close(data.packed.images[0, 0], expected, rtol=0, atol=1e-6)
    assert (data.packed.images[1] == 1).all()
    assert data.packed.about["notes"] == {"with values outside data.value_range, which are clipped": 1}
    assert folder(tmp_path, tmp_path / "cache", channels=1, value_range=(-10, 30)).packed.path == data.packed.path
    small = folder(tmp_path, tmp_path / "cache", channels=1, value_range=(-10.0, 30.0), dtype="uint8")
    assert torch.equal(small.packed.images[0, 0], ((expected + 1) / 2 * 255).round().to(torch.uint8))
    assert small.packed.about["notes"]["float32 values, scaled to 8 bits (data.dtype=float32 keeps them)"] == 1


@pytest.mark.parametrize(
    ("values", "settings", "sentence"),
    [
        (np.linspace(2, 7, 80).reshape(8, 10), {}, "has float64 values, here from 2 to 7, and the value range"),
        (np.zeros((8, 10), np.int32), {}, "has int32 values, here from 0 to 0"),
        (np.full((8, 10), np.nan), {"value_range": (0.0, 1.0)}, "has values that are not finite"),
        (np.zeros((8, 10, 3), np.uint8), {}, r"has the shape (8, 10, 3), expected 1 channels (data.channels)"),
        (np.array([{}]), {}, "cannot be read as an image: Object arrays cannot be loaded"),
        (np.zeros((8, 10)), {"channels": 2}, "has the shape (8, 10, 1), expected 2 channels"),
    ],
)
def test_what_is_not_known_of_a_file_is_refused(tmp_path, values, settings, sentence):
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(RefusedInput, match=f"a.npy {re.escape(sentence)}"):
        _ = folder(tmp_path, tmp_path / "cache", **{"channels": 1, **settings}).packed


def test_no_channels_are_refused(tmp_path):
    with pytest.raises(RefusedInput, match=r"^channels=0 must be at least 1\."):
        folder(tmp_path, tmp_path / "cache", channels=0)


def test_a_range_that_is_none_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((8, 10)))
    with pytest.raises(RefusedInput, match=r"value_range=.* the second number must be greater"):
        folder(tmp_path, tmp_path, value_range=(1.0, 1.0))


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_to_8_not_saturated_and_noted(tmp_path, channels):
    values = RNG.integers(0, 65536, (8, 10, channels)).astype(np.uint16)
    write_png(tmp_path / "a.png", values)
    data = folder(tmp_path, tmp_path / "cache", dtype="uint8", channels=channels)
    assert data.packed.about["notes"] == {"16 bits, scaled to 8": 1}
    assert np.abs(data.packed.images[0].numpy() - np.moveaxis(values, -1, 0) / 257.0).max() <= 1


def test_other_images_are_also_read_as_values(tmp_path):
    colors = RNG.integers(0, 256, (8, 10, 3), dtype=np.uint8)
    Image.fromarray(colors).save(tmp_path / "a.bmp")
    Image.fromarray(colors).quantize(256).save(tmp_path / "b.gif")
    images = folder(tmp_path, tmp_path / "cache").packed.images
    torch.testing.assert_close((images[0] + 1) / 2 * 255, torch.from_numpy(np.moveaxis(colors, -1, 0)).float())
    assert (images[1] - images[0]).abs().mean() < 0.1


def test_values_are_cropped_and_resized_like_images():
    pixels = RNG.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    for size in (16, (10, 20)):
        expected = Frame(size, 3).fit(Image.fromarray(pixels), "it", [])
        found = Frame(size, 3, dtype="float32").fit(pixels, "it", [])
        assert found.shape == expected.shape
        assert np.abs((found + 1) / 2 * 255 - expected).max() <= 1.5, "a picture is rounded in between"


@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
@pytest.mark.parametrize("apart", [False, True])
def test_pairs_whose_sides_have_other_channels(tmp_path, direction, apart):
    left, right = RNG.integers(0, 256, (8, 10, 2), dtype=np.uint8), RNG.integers(0, 256, (8, 10, 3), dtype=np.uint8)
    if not apart:  # one array has one number of channels
        right = right[..., :2]
    files = {"A/1.npy": left, "B/1.npy": right} if apart else {"1.npy": np.concatenate([left, right], 1)}
    for name, values in files.items():
        (tmp_path / "pairs" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "pairs" / name, values)
    sides = {"input": left, "image": right} if direction == "a_to_b" else {"input": right, "image": left}
    channels = {"input_channels": sides["input"].shape[-1], "channels": sides["image"].shape[-1]}
    cache = str(tmp_path / "cache")
    data = PairedFolder(str(tmp_path / "pairs"), direction, image_size=(8, 10), cache=cache, **channels)
    assert data.input_channels == channels["input_channels"]
    for name, values in sides.items():
        assert np.array_equal(data.held_out[name][0].numpy(), np.moveaxis(values, -1, 0))
    step = data.on_after_batch_transfer(data.dataset[torch.tensor([0])], 0)
    assert np.array_equal(step["input"][0].numpy(), np.moveaxis(sides["input"], -1, 0))
    assert np.array_equal(step["image"][0].numpy(), np.moveaxis(sides["image"], -1, 0))


def test_other_channels_are_shown_side_by_side_in_gray():
    images = torch.rand(2, 5, 3, 4)
    shown = viewable(images)
    assert shown.shape == (2, 1, 3, 20)
    assert torch.equal(shown[1, 0, :, 8:12], images[1, 2])
    for channels in (1, 3, 4):
        assert viewable(images[:, :channels]).shape == (2, channels, 3, 4)


@pytest.mark.parametrize("channels", [3, 4])
def test_a_gray_array_is_repeated_wherever_its_channel_is(channels):
    values = np.arange(80, dtype=np.uint8).reshape(8, 10)
    last, first = (Frame((8, 10), channels).fit(gray, "it", []) for gray in (values[..., None], values[None]))
    assert np.array_equal(first, last)
    assert np.array_equal(first[2], values)


@pytest.mark.parametrize("num", [2, 4])
def test_advice_on_channels_names_no_setting_that_does_not_exist(num):
    values = np.zeros((8, 8, num), np.uint8)
    with pytest.raises(RefusedInput, match=r"expected 3 channels \(data.channels\); .* use data.channels=4"):
        Frame(8, 3).fit(values, "it", [])
    with pytest.raises(RefusedInput, match=r"expected 3 channels; if the last channel is transparency, remove it"):
        Frame(8, 3, keys="").fit(values, "it", [])
