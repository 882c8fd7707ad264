"""Bad and unusual files: each named, none fatal by surprise, none silent."""

import os
import re

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import sides
from lit_gans.data.base import resized
from lit_gans.data.images import Frame, images_at, read_at
from lit_gans.data.sources.folder import Folder

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    """A folder with two good pictures, and a datamodule on it at 8x8."""
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("a", "z"):
        Image.fromarray(RNG.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(root / f"{name}.png")

    def data(**settings):
        return Folder(str(root), **{"image_size": 8, "cache": str(tmp_path / "cache"), "batch_size": 2, **settings})

    return root, data


def truncated(path):
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BAD = {
    "truncated.jpg": (truncated, "cannot be read as an image"),
    "empty.jpg": (lambda path: path.write_bytes(b""), "cannot be read as an image: cannot identify image file"),
    "link.png": (lambda path: path.symlink_to("nowhere.png"), "No such file or directory"),
    "floats.tiff": (lambda path: Image.fromarray(np.ones((4, 4), np.float32)).save(path), "floating-point pixels"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_path_and_reason_or_left_out_and_listed(folder, caplog, name):
    root, data = folder
    write, reason = BAD[name]
    write(root / name)
    with pytest.raises(RefusedInput, match=re.escape(str(root / name))) as refused:
        data().setup("fit")
    assert reason in str(refused.value)
    assert "data.on_error=skip" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "BytesIO" not in str(refused.value)
    skipping = data(on_error="skip")
    assert len(skipping.dataset) == 2
    assert "1 left out" in caplog.text
    assert str(root / name) in caplog.text
    assert reason in caplog.text


def test_a_folder_that_may_not_be_opened_is_refused(folder, monkeypatch):
    root, data = folder
    (root / "inside").mkdir()
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("inside"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(RefusedInput, match=re.escape(f"{root / 'inside'} cannot be opened: Permission denied")):
        data()


def only(folder, name, picture, channels=3, **settings):
    """The image that a folder with this picture alone serves, and what was printed."""
    root, data = folder
    for path in root.iterdir():
        path.unlink()
    picture.save(root / name, **settings.pop("save", {}))
    served = data(channels=channels, batch_size=1, **settings)
    return served.packed.images[0], served.packed.about["notes"]


def palette():
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 10, 200, 30])
    return picture


OVER = "transparent, composited over data.background"
BLUE = {"background": (0, 0, 255)}
ANIMATED = {"save_all": True, "append_images": [Image.new("RGB", (8, 8), "blue")]}


@pytest.mark.parametrize(
    ("file", "picture", "settings", "expected", "note"),
    [
        ("g.png", Image.new("L", (8, 8), 77), {}, [77] * 3, None),
        ("c.jpg", Image.new("CMYK", (8, 8), (255, 0, 0, 0)), {"save": {"quality": 100}}, [0, 255, 255], None),
        ("p.png", palette(), {}, [10, 200, 30], None),
        ("p.png", palette(), {"channels": 1}, [0.299 * 10 + 0.587 * 200 + 0.114 * 30], None),
        ("t.png", palette(), {"save": {"transparency": 1}}, [255] * 3, OVER),
        ("glass.png", Image.new("RGBA", (8, 8), (200, 100, 0, 128)), BLUE, [100.4, 50.2, 127], OVER),
        ("glass.png", Image.new("LA", (8, 8), (100, 128)), BLUE, [50.2, 50.2, 177.2], OVER),
        ("glass.png", Image.new("RGBA", (8, 8), (200, 100, 0, 128)), {"channels": 4}, [200, 100, 0, 128], None),
        ("solid.png", Image.new("RGB", (8, 8), (1, 2, 3)), {"channels": 4}, [1, 2, 3, 255], None),
        ("a.gif", Image.new("RGB", (8, 8), "red"), {"save": ANIMATED}, [255, 0, 0], "animated or with several"),
        ("dot.png", Image.new("RGB", (1, 1), (1, 2, 3)), {}, [1, 2, 3], "smaller than image_size, enlarged"),
    ],
)
def test_images_of_a_single_color(folder, file, picture, settings, expected, note):
    image, notes = only(folder, file, picture, **settings)
    assert (image.flatten(1).T - torch.tensor(expected)).abs().max() <= (3 if file == "c.jpg" else 1)
    assert [said.startswith(note) for said in notes] == [True] if note else not notes


def test_the_camera_s_orientation_is_applied(folder):
    pixels = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    image, _ = only(folder, "turned.png", Image.fromarray(pixels), save={"exif": exif})
    assert np.array_equal(image.permute(1, 2, 0).numpy(), np.rot90(pixels, -1))


def test_lab_colors_become_gray(folder):
    lab = Image.new("LAB", (8, 8), (128, 128, 128))
    image, _ = only(folder, "lab.tif", lab, channels=1)
    assert (image.float() - np.asarray(lab.convert("RGB")).mean()).abs().max() < 2


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        (b"Exif\0\0II*\0\x08\0\0\0\x02\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\x01\x02\0\x02\0\0\0a\0\0\0\0\0\0\0", True),
        (b"Exif\0\0garbage-garbage-garbage", False),
        (b"Exif\0\0II", False),
    ],
    ids=["that cannot be written", "garbage", "cut off"],
)
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
def test_damaged_exif_data_do_not_refuse_an_image(folder, name, content, is_read):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    lossless = {"quality": 100} | ({"lossless": True} if name == "a.webp" else {})
    image, notes = only(folder, name, Image.fromarray(pixels), save={"exif": content, **lossless})
    found = image.permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - (np.rot90(pixels, -1) if is_read else pixels)).max() <= 2
    note = "with unreadable EXIF data, so that they are not rotated"
    possible = [[]] if is_read else [[note]]
    if name == "a.jpg":  # for which Pillow 12 ignores damaged data
        possible.append([])
    assert list(notes) in possible


def test_empty_folders_and_too_few_images(folder, caplog):
    root, data = folder
    for name in ("cats", "dogs", "empty"):
        (root / name).mkdir()
    (root / "a.png").rename(root / "cats" / "a.png")
    (root / "z.png").rename(root / "dogs" / "z.png")
    (root / "dogs" / ".DS_Store.png").write_bytes(b"hidden")
    with pytest.raises(RefusedInput, match=re.escape(f"1 of 3 class folders contain no images, such as {root}")):
        data()
    kept = data(on_error="skip")
    assert f"such as {root / 'empty'}; these are left out" in caplog.text
    assert (kept.classes, kept.num_classes, kept.dataset.labels.tolist()) == (["cats", "dogs"], 2, [0, 1])
    with pytest.raises(RefusedInput, match="the data has 2 images, but one step needs 3"):
        data(on_error="skip", batch_size=3).setup("fit")
    with pytest.raises(RefusedInput, match=r"empty contains no images \(.jpg"):
        Folder(str(root / "empty"))


def test_without_a_crop_the_aspect_ratio_changes_and_a_crop_is_at_most_the_image():
    pixels = RNG.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    full = Frame(16, 3, crop="none").fit(Image.fromarray(pixels), "it", [])
    expected = resized(torch.from_numpy(pixels).permute(2, 0, 1)[None], 16)[0]
    assert (torch.from_numpy(full).int() - expected.int()).abs().max() <= 1
    for crop in (0, 46):  # of nothing, or of more than there is
        with pytest.raises(
            RefusedInput, match=f"it is 70x45 pixels: crop={crop} must be at least 1, and at most 45 high"
        ):
            Frame(8, 3, crop=crop).fit(Image.fromarray(pixels), "it", [])


@pytest.mark.parametrize(
    ("size", "box"),  # rows and columns of the picture, of 45 rows and 70 columns
    [((9, 14), (0, 45, 0, 70)), (9, (0, 45, 12, 57)), ((18, 9), (0, 45, 24, 46)), ((9, 36), (14, 31, 0, 70))],
)
def test_the_central_part_is_resized_as_torch_resizes_with_antialiasing(size, box):
    pixels = RNG.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    image = Frame(size, 3).fit(Image.fromarray(pixels), "it", [])
    top, bottom, left, right = box
    expected = resized(torch.from_numpy(pixels[top:bottom, left:right].copy()).permute(2, 0, 1)[None], size)[0]
    height, width = sides(size)
    assert image.shape == (3, height, width)
    assert (torch.from_numpy(image).int() - expected.int()).abs().max() <= 1
    part = Frame(size, 3, crop=size).fit(Image.fromarray(pixels), "it", [])
    top, left = (45 - height) // 2, (70 - width) // 2
    assert np.array_equal(part.transpose(1, 2, 0), pixels[top : top + height, left : left + width])


def test_files_are_read_in_the_order_of_their_names_uncropped_at_one_size_or_whole(tmp_path):
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for name in ("b.png", "a.bmp"):
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "readme.md").write_text("no picture")
    assert images_at(str(tmp_path)) == [tmp_path / "a.bmp", tmp_path / "b.png"]
    assert images_at(tmp_path / "b.png") == [tmp_path / "b.png"]
    frame = Frame(16, 3, "none")
    for path in images_at(tmp_path):
        assert read_at(path, frame).shape == (1, 3, 16, 16)
        whole = read_at(path, frame, whole=True)[0].permute(1, 2, 0) * 255
        assert np.array_equal(whole.round().numpy(), pixels)
