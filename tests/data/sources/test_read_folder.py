"""Reading files at their own size, and folders at one size."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import read_folder, read_image

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 255, 0)


def test_read_image_is_true_to_every_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png", 3)[0].permute(1, 2, 0).numpy(), pixels)
    gray = np.asarray(Image.fromarray(pixels).convert("L"))
    assert np.array_equal(read_image(tmp_path / "a.png", 1)[0, 0].numpy(), gray)


def test_read_folder_reads_uncropped_images_at_one_size_in_the_order_of_their_names(tmp_path):
    for name, color, size in (("b.png", GREEN, (8, 8)), ("a.jpg", RED, (40, 24)), ("c.bmp", BLUE, (16, 16))):
        Image.new("RGB", size, color).save(tmp_path / name)
    (tmp_path / "readme.md").write_text("no picture")
    paths, pictures = read_folder(str(tmp_path), image_size=16, channels=3)
    assert [path.name for path in paths] == ["a.jpg", "b.png", "c.bmp"]
    assert pictures.shape == (3, 3, 16, 16)
    expected = torch.tensor([RED, GREEN, BLUE])
    assert (pictures.float().mean((2, 3)) - expected).abs().max() <= 3
    assert read_folder(tmp_path, image_size=4, channels=1)[1].shape == (3, 1, 4, 4)


def test_read_folder_refuses_a_folder_without_pictures_and_one_that_does_not_exist(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, why in {"empty": " contains no images", "nowhere": ": there is no such folder"}.items():
        with pytest.raises(RefusedInput, match=re.escape(f"{tmp_path / name}{why}")):
            read_folder(tmp_path / name, image_size=16, channels=3)


def test_16_bit_gray_is_scaled_and_not_clipped(tmp_path):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(1, 256).repeat(2, 0)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    assert (read_image(tmp_path / "ramp.png", 1).flatten()[:256] - torch.arange(256)).abs().max() <= 1
