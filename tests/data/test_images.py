"""Bad and unusual files: each named, none fatal by surprise, none silent."""

import os
import re
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data import images as pictures
from lit_gans.data.base import resized
from lit_gans.data.images import Frame, open_picture
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


def noise(path, size=(64, 64), **options):
    Image.fromarray(RNG.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path, **options)


def truncated(path):
    noise(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def header_only_png(path, side=20_000):
    """A PNG of side x side pixels whose few bytes would unpack to gigabytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b""))


BAD = {
    "truncated.jpg": (truncated, "cannot be read as an image"),
    "empty.jpg": (lambda path: path.write_bytes(b""), "cannot be read as an image: cannot identify image file"),
    "text.png": (lambda path: path.write_text("no picture"), "cannot be read as an image: cannot identify image file"),
    "huge.png": (header_only_png, "exceeds limit of 178956970 pixels"),
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
    assert skipping.packed.about["skipped"] == [line for line in skipping.packed.about["skipped"] if name in line]
    for path, image in zip((root / "a.png", root / "z.png"), skipping.packed.images, strict=True):
        assert np.array_equal(Frame(8, 3).fit(open_picture(path, "", []), "")[0], image.numpy())


def test_a_file_that_may_not_be_read_is_refused_by_its_path(folder, monkeypatch):
    root, data = folder
    locked, read = root / "z.png", pictures.read_bounded

    def read_bounded(path, most):  # the tests may run as root, who may read everything
        if path == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, most)

    monkeypatch.setattr(pictures, "read_bounded", read_bounded)
    with pytest.raises(
        RefusedInput, match=re.escape(f"{locked} cannot be read as an image: [Errno 13] Permission denied")
    ):
        data().setup("fit")
    assert len(data(on_error="skip", batch_size=1).dataset) == 1


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


def test_16_bit_is_scaled_and_not_saturated(folder):
    ramp = np.linspace(0, 65535, 8).round().astype(np.uint16)[None].repeat(8, 0)
    image, notes = only(folder, "ramp.png", Image.fromarray(ramp), channels=1)
    assert (image[0, 0].int() - torch.from_numpy(ramp[0] / 257).round().int()).abs().max() <= 1
    assert notes == {"16 bits, scaled to 8": 1}


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_lies_on_the_stated_color(folder, mode):
    pixels = {"RGBA": (200, 100, 0, 128), "LA": (100, 128)}[mode]
    picture = Image.new(mode, (8, 8), pixels)
    image, notes = only(folder, "glass.png", picture, background=(0, 0, 255))
    over = np.array(pixels[:3] if mode == "RGBA" else (100,) * 3) * 128 / 255 + np.array([0, 0, 255]) * 127 / 255
    assert (image[:, 0, 0].numpy() - over).__abs__().max() <= 1
    assert notes == {"transparent, composited over data.background": 1}
    assert image.flatten(1).float().std(1).max() == 0


def test_four_channels_keep_the_opacity(folder):
    image, _ = only(folder, "glass.png", Image.new("RGBA", (8, 8), (200, 100, 0, 128)), channels=4)
    assert image[:, 3, 3].tolist() == [200, 100, 0, 128]
    image, _ = only(folder, "solid.png", Image.new("RGB", (8, 8), (1, 2, 3)), channels=4)
    assert image[:, 3, 3].tolist() == [1, 2, 3, 255]


@pytest.mark.parametrize("channels", [1, 3])
def test_palette_and_its_transparency(folder, channels):
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    image, _ = only(folder, "p.png", palette, channels=channels)
    green = [10, 200, 30] if channels == 3 else [round(0.299 * 10 + 0.587 * 200 + 0.114 * 30)]
    assert image[:, 0, 0].tolist() == green
    image, notes = only(folder, "t.png", palette, channels=channels, save={"transparency": 1})
    assert image[:, 0, 0].tolist() == [255] * channels
    assert notes == {"transparent, composited over data.background": 1}


def test_cmyk_and_gray_among_color(folder):
    cyan = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    image, _ = only(folder, "c.jpg", cyan, save={"quality": 100})
    assert np.abs(image[:, 4, 4].numpy().astype(int) - [0, 255, 255]).max() <= 3
    image, _ = only(folder, "g.png", Image.new("L", (8, 8), 77))
    assert image[:, 4, 4].tolist() == [77] * 3


@pytest.mark.parametrize(("orientation", "turned"), [(3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1))])
def test_the_camera_s_orientation_is_applied(folder, orientation, turned):
    pixels = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image, _ = only(folder, "turned.png", Image.fromarray(pixels), save={"exif": exif})
    assert np.array_equal(image.permute(1, 2, 0).numpy(), turned(pixels))


def test_of_an_animation_the_first_frame_is_taken(folder):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    image, notes = only(folder, "a.gif", frames[0], save={"save_all": True, "append_images": frames[1:]})
    assert image[:, 0, 0].tolist() == [255, 0, 0]
    assert notes == {"animated or of several pages, first one used": 1}


def test_one_pixel_becomes_a_plain_image(folder):
    image, notes = only(folder, "dot.png", Image.new("RGB", (1, 1), (1, 2, 3)))
    assert image.flatten(1).T.unique(dim=0).tolist() == [[1, 2, 3]]
    assert notes == {"smaller than image_size, enlarged": 1}


def test_names_beyond_ascii(folder):
    image, _ = only(folder, "Ünïcödé 写真 🐈.png", Image.new("RGB", (8, 8), (9, 8, 7)))
    assert image[:, 0, 0].tolist() == [9, 8, 7]


def test_empty_folders_and_too_few_pictures(folder, caplog):
    root, data = folder
    with pytest.raises(RefusedInput, match=r"the data has 2 images, one step needs 3 .*use data\.batch_size=2 or less"):
        data(batch_size=3).setup("fit")
    for name in ("cats", "dogs", "empty"):
        (root / name).mkdir()
    (root / "a.png").rename(root / "cats" / "a.png")
    (root / "z.png").rename(root / "dogs" / "z.png")
    (root / "dogs" / ".DS_Store.png").write_bytes(b"hidden")
    with pytest.raises(RefusedInput, match=re.escape(f"{root / 'empty'} contains no images, 1 of 3 class folders")):
        data()
    kept = data(on_error="skip")
    assert "1 class folders without images left out: empty" in caplog.text
    assert (kept.classes, kept.num_classes, kept.dataset.labels.tolist()) == (["cats", "dogs"], 2, [0, 1])
    with pytest.raises(RefusedInput, match=r"empty contains no images \(.jpg"):
        Folder(str(root / "empty"))
    with pytest.raises(RefusedInput, match="nowhere: there is no such folder"):
        Folder(str(root / "nowhere"))


def test_resizing_is_the_antialiased_one_of_torch_after_the_central_crop():
    pixels = RNG.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    image, _ = Frame(16, 3).fit(Image.fromarray(pixels), "it")
    ours, cropped = torch.from_numpy(image), torch.from_numpy(pixels[:, 12:57].copy()).permute(2, 0, 1)[None]
    assert (ours.int() - resized(cropped, 16)[0].int()).abs().max() <= 1
    full, _ = Frame(16, 3, crop="none").fit(Image.fromarray(pixels), "it")
    expected = resized(torch.from_numpy(pixels).permute(2, 0, 1)[None], 16)[0]
    assert (torch.from_numpy(full).int() - expected.int()).abs().max() <= 1
    cropped, _ = Frame(16, 3, crop=16).fit(Image.fromarray(pixels), "it")
    assert np.array_equal(cropped.transpose(1, 2, 0), pixels[14:30, 27:43])


def test_wrong_frames_are_refused():
    with pytest.raises(RefusedInput, match="crop=0 must be at least 1, or center, or none"):
        Frame(8, 3, crop=0)
    with pytest.raises(RefusedInput, match=r"background=\[0, 0, 256\]"):
        Frame(8, 3, background=(0, 0, 256))
    with pytest.raises(RefusedInput, match="it is 4x9 pixels, smaller than crop=5"):
        Frame(8, 3, crop=5).fit(Image.new("RGB", (4, 9)), "it")
