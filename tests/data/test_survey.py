"""What a look at a folder of pictures finds."""

import numpy as np
import pytest
from PIL import Image

from lit_gans.data.survey import Survey, survey


def write(folder, name, size, mode="RGB", gray=False):
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    picture = Image.fromarray(values).convert("L").convert(mode) if gray else Image.fromarray(values).convert(mode)
    picture.save(folder / name)
    return folder / name


@pytest.mark.parametrize(
    ("mode", "gray", "channels"), [("RGB", False, 3), ("L", True, 1), ("RGB", True, 1), ("P", False, 3), ("1", True, 1)]
)
def test_gray_images_are_recognized_in_every_mode(tmp_path, mode, gray, channels):
    paths = [write(tmp_path, f"{index}.png", (40, 30), mode, gray) for index in range(3)]
    assert survey(paths, 2) == Survey(3, 2, 30, 40, True, channels)


@pytest.mark.parametrize("colored", [0, 4])
def test_a_single_color_image_makes_the_survey_colored(tmp_path, colored):
    paths = [write(tmp_path, f"{index}.png", (40, 30), gray=index != colored) for index in range(5)]
    assert survey(paths).channels == 3


def test_sizes_are_medians_of_upright_images_and_shapes_are_compared(tmp_path):
    paths = [write(tmp_path, f"{index}.png", (60 + index, 40)) for index in range(9)]
    found = survey(paths)
    assert (found.height, found.width, found.same_shape) == (40, 64, True)
    others = [write(tmp_path, f"other{index}.png", (40, 60)) for index in range(8)]
    assert not survey(paths + others).same_shape

    turned = Image.open(paths[0])
    exif = turned.getexif()
    exif[0x0112] = 6  # a camera that was held upright
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert survey([tmp_path / "turned.jpg"]).height == 60


def test_unreadable_files_are_counted(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    found = survey([tmp_path / "broken.png", write(tmp_path, "good.png", (20, 20))])
    assert (found.num, len(found.unreadable), found.width) == (2, 1, 20)


def test_arrays_have_as_many_channels_as_they_have(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((30, 40, 12), np.uint16))
    np.save(tmp_path / "b.npy", np.zeros((12, 30, 40), np.uint16))
    np.save(tmp_path / "c.npy", np.zeros(5))
    found = survey(sorted(tmp_path.iterdir()))
    assert (found.channels, found.height, found.width, len(found.unreadable)) == (12, 30, 40, 1)
