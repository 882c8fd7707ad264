"""Every reader of a file follows one rule: the range of its values is known, or is refused until it is given."""

import inspect
import io
import itertools
import re
from functools import partial

import numpy as np
import png
import pytest
import tifffile
import torch
from PIL import Image

from lit_gans.cli.commands.evaluate import evaluate
from lit_gans.cli.commands.project import project
from lit_gans.cli.commands.sample import sample
from lit_gans.common.errors import RefusedInput
from lit_gans.data.decoding import MAX_PIXELS, Decoding, read_picture
from lit_gans.data.images import Frame, read_at
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder
from lit_gans.data.sources.unpaired import Unpaired
from lit_gans.data.survey import survey
from lit_gans.metrics.folder import PictureFolder

SHAPE = (8, 10)
RAMP = np.arange(80).reshape(SHAPE)
CT = np.linspace(-1024, 3056, 80).round().astype(np.int16).reshape(SHAPE)


def tiff(values, **settings):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, values, **{"photometric": "minisblack", **settings})
    return buffer.getvalue()


def deep_png(values):
    buffer = io.BytesIO()
    channels = values.shape[2] if values.ndim == 3 else 1
    writer = png.Writer(*values.shape[1::-1], greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
    writer.write(buffer, values.reshape(len(values), -1))
    return buffer.getvalue()


def of_pillow(picture, kind, **settings):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **settings)
    return buffer.getvalue()


def npy(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


UNKNOWN = {
    "int16.tif": (tiff(CT), "int16", "-1024 to 3056"),
    "big_endian.tif": (tiff(CT.astype(">i2"), byteorder=">"), "int16", "-1024 to 3056"),
    "int8.tif": (tiff((RAMP - 40).astype(np.int8)), "int8", "-40 to 39"),
    "int32.tif": (tiff(RAMP.astype(np.int32) * 1000), "int32", "0 to 79000"),
    "uint32.tif": (tiff(RAMP.astype(np.uint32) + 2**31), "uint32", "2.14748e+09 to 2.14748e+09"),
    "float32.tif": (tiff(RAMP.astype(np.float32)), "float32", "0 to 79"),
    "float64.tif": (tiff(RAMP.astype(np.float64)), "float64", "0 to 79"),
    "colors.tif": (tiff(np.stack([CT] * 3, -1), photometric="rgb"), "int16", "-1024 to 3056"),
    "positive_int16.tif": (tiff(RAMP.astype(np.int16)), "int16", "0 to 79"),
    "pillow.tif": (of_pillow(Image.fromarray(RAMP.astype(np.int32)), "TIFF"), "int32", "0 to 79"),
    "gray.pfm": (of_pillow(Image.fromarray(RAMP.astype(np.float32)), "PPM"), "float32", "0 to 79"),
    "int16.npy": (npy(CT), "int16", "-1024 to 3056"),
    "big_endian.npy": (npy(CT.astype(">i2")), "int16", "-1024 to 3056"),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_values_of_an_unknown_range_are_refused_by_both_readers_until_the_range_is_given(tmp_path, name, dtype):
    content, kind, span = UNKNOWN[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    data = partial(Folder, str(tmp_path / "in"), image_size=SHAPE, dtype=dtype, cache=str(tmp_path / "cache"))
    with pytest.raises(RefusedInput) as refused:
        _ = data().packed
    assert f"{name} has {kind} values, here from {span}, and the value range of" in str(refused.value)
    assert "add data.value_range=[LOW,HIGH], the values that become black and white" in str(refused.value)
    values = np.asarray(read_picture(content, [], Decoding(as_values=True)), np.float64)
    low, high = values.min(), values.max()
    image = data(value_range=(low, high)).packed.images[0]  # as the message says, with three channels
    unit = image.double() / 255 if dtype == "uint8" else (image.double() + 1) / 2
    gray = values if values.ndim == 2 else values[..., 0]
    assert unit.shape == (3, *SHAPE)
    expected = torch.from_numpy((gray - low) / (high - low)).expand(3, *SHAPE)
    torch.testing.assert_close(unit, expected, rtol=0, atol=0.002 if dtype == "uint8" else 1e-6)


IN_16_BITS = (RAMP * 800).astype(np.uint16)
KNOWN = {
    "gray.png": (deep_png(IN_16_BITS), 65535),
    "gray.tif": (tiff(IN_16_BITS), 65535),
    "big_endian.tif": (tiff(IN_16_BITS.astype(">u2"), byteorder=">"), 65535),
    "gray.npy": (npy(IN_16_BITS), 65535),
    "big_endian.npy": (npy(IN_16_BITS.astype(">u2")), 65535),
    "gray.pgm": (b"P5\n10 8\n65535\n" + IN_16_BITS.astype(">u2").tobytes(), 65535),
    "planes.tif": (tiff(np.stack([IN_16_BITS] * 3), photometric="rgb", planarconfig="separate"), 65535),
    "white_is_zero.tif": (tiff(65535 - IN_16_BITS, photometric="miniswhite"), 65535),
    "gray_8.tif": (tiff(RAMP.astype(np.uint8)), 255),
    "bits.tif": (of_pillow(Image.fromarray(RAMP % 2 == 0), "TIFF"), 1),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", KNOWN)
def test_values_of_a_known_range_are_the_same_for_both_readers(tmp_path, name, dtype):
    content, white = KNOWN[name]
    values = {1: RAMP % 2 == 0, 255: RAMP, 65535: IN_16_BITS}[white].astype(np.float64)
    (tmp_path / name).write_bytes(content)
    frame = Frame(SHAPE, 3, dtype=dtype)
    image = read_at(tmp_path / name, frame)[0].double()
    assert torch.equal(image[0], image[2])
    torch.testing.assert_close(image[0], torch.from_numpy(values / white), rtol=0, atol=0.003)


def test_both_readers_decode_8_bit_images_to_the_same_values(tmp_path):
    colors = np.random.default_rng(0).integers(0, 256, (*SHAPE, 4), dtype=np.uint8)
    rgba = Image.fromarray(colors)
    rgb = rgba.convert("RGB")
    pictures = {
        "rgb.png": rgb,
        "rgba.png": rgba,
        "gray.png": rgb.convert("L"),
        "glass.png": rgba.convert("LA"),
        "palette.png": rgb.quantize(16),
        "inks.tif": rgb.convert("CMYK"),
        "bits.png": rgb.convert("1"),
    }
    for name, picture in pictures.items():
        path = tmp_path / name
        picture.save(path)
        for channels in (1, 3, 4):
            small = read_at(path, Frame(SHAPE, channels))
            deep = read_at(path, Frame(SHAPE, channels, dtype="float32"))
            torch.testing.assert_close(deep, small, rtol=0, atol=1e-6)


def test_the_first_page_is_used_by_both_readers_unless_pages_are_the_channels(tmp_path):
    pages = [Image.fromarray((RAMP * 100 * factor).astype(np.uint16)) for factor in (1, 2)]
    path = tmp_path / "pages.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    for dtype in ("uint8", "float32"):
        notes = []
        frame = Frame(SHAPE, 1, dtype=dtype)
        image = frame.fit(read_picture(path, notes, frame.decoding), "it", notes)
        assert "animated or with several pages, of which only the first is used" in notes
        unit = image[0] / 255 if dtype == "uint8" else (image[0] + 1) / 2
        assert np.abs(unit - RAMP * 100 / 65535).max() < 0.003
    both = read_at(path, Frame(SHAPE, 2, dtype="float32"))
    assert np.abs(both[0, 1].numpy() - RAMP * 200 / 65535).max() < 1e-6


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [3, 4])
def test_pages_and_arrays_are_channels_for_both_readers(depth, channels):
    values = np.random.default_rng(0).integers(0, np.iinfo(depth).max + 1, (channels, *SHAPE)).astype(depth)
    contents = {
        "pages": tiff(values, metadata=None),
        "array": tiff(values),
        "channels_last": tiff(np.moveaxis(values, 0, -1)),
    }
    for dtype, name in itertools.product(("uint8", "float32"), contents):
        frame = Frame(SHAPE, channels, dtype=dtype)
        image = frame.fit(read_picture(contents[name], [], frame.decoding), "it", [])
        unit = image / 255 if dtype == "uint8" else (image + 1) / 2
        assert np.abs(unit - values / np.iinfo(depth).max).max() < 0.003, (dtype, name)


def test_an_array_of_other_channels_is_refused_by_both_readers_rather_than_read_by_its_first_row():
    content = tiff(np.zeros((*SHAPE, 3), np.uint8))
    for dtype in ("uint8", "float32"):
        frame = Frame(SHAPE, 1, dtype=dtype)
        with pytest.raises(RefusedInput, match=re.escape("has the shape (8, 10, 3), expected 1 channels")):
            frame.fit(read_picture(content, [], frame.decoding), "it", [])


def test_the_transparent_value_of_a_gray_png_of_16_bits_is_composited_or_refused(tmp_path):
    buffer, path = io.BytesIO(), tmp_path / "a.png"
    writer = png.Writer(*SHAPE[::-1], greyscale=True, bitdepth=16, transparent=int(IN_16_BITS[0, 3]))
    writer.write(buffer, IN_16_BITS)
    path.write_bytes(buffer.getvalue())
    opaque = IN_16_BITS / 65535
    image = read_at(path, Frame(SHAPE, 1, background=(0, 255, 0)))[0, 0].numpy()
    green = image[0, 3]
    assert abs(green - 0.587) < 0.003, "the background, in gray"
    image[0, 3] = opaque[0, 3]
    assert np.abs(image - opaque).max() < 0.003
    rgba = read_at(path, Frame(SHAPE, 4))[0].numpy()
    assert np.array_equal(rgba[3], np.arange(80).reshape(SHAPE) != 3)
    for settings in ({"dtype": "float32"}, {"value_range": (0, 65535)}):
        with pytest.raises(RefusedInput, match="if the second channel is transparency, convert the file to RGBA"):
            read_at(path, Frame(SHAPE, 1, **settings))
    writer = png.Writer(*SHAPE[::-1], greyscale=True, bitdepth=16, transparent=7)  # which no pixel has
    with path.open("wb") as file:
        writer.write(file, IN_16_BITS)
    assert np.abs(read_at(path, Frame(SHAPE, 1, dtype="float32"))[0, 0].numpy() - opaque).max() < 1e-6


@pytest.mark.parametrize(("kind", "maximum"), [("P2", 15), ("P2", 1023), ("P5", 100), ("P5", 4095), ("P3", 100)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_stated_maximum_is_white_and_a_given_range_is_that_of_the_file(kind, maximum, dtype):
    channels = 3 if kind == "P3" else 1
    values = np.random.default_rng(0).integers(0, maximum + 1, (*SHAPE, channels))
    binary = values.astype(">u2" if maximum > 255 else np.uint8).tobytes()
    pixels = binary if kind == "P5" else " ".join(map(str, values.flat)).encode()
    content = f"{kind}\n10 8\n{maximum}\n".encode() + pixels
    for low, high in ((0, maximum), (maximum // 4, maximum // 2)):
        for value_range in ((low, high),) if low else (None, (low, high)):
            frame = Frame(SHAPE, channels, dtype=dtype, value_range=value_range)
            image = frame.fit(read_picture(content, [], frame.decoding), "it", [])
            unit = image / 255 if dtype == "uint8" else (image + 1) / 2
            expected = np.moveaxis((values - low) / (high - low), -1, 0).clip(0, 1)
            assert np.abs(unit - expected).max() < 0.003, value_range


def jpeg_2000(values, bits, is_signed):
    """A lossless file of gray values: written with 16 bits, of which the header then states fewer."""
    offset = 32768 - (0 if is_signed else 2 ** (bits - 1))  # the middle of the range is stored as 0
    content = bytearray(of_pillow(Image.fromarray((values + offset).astype(np.uint16)), "JPEG2000", no_jp2=True))
    content[content.index(b"\xff\x51") + 40] = bits - 1 + 128 * is_signed
    return bytes(content)


@pytest.mark.parametrize(("bits", "is_signed"), [(4, False), (8, True), (12, False), (12, True), (16, False)])
def test_a_given_range_is_that_of_the_values_in_a_jpeg_2000_file(bits, is_signed):
    low = -(2 ** (bits - 1)) if is_signed else 0
    values = np.linspace(low, low + 2**bits - 1, 80).round().astype(int).reshape(SHAPE)
    frame = Frame(SHAPE, 1, dtype="float32", value_range=(low, low + 2**bits - 1))
    picture = read_picture(jpeg_2000(values, bits, is_signed), [], frame.decoding)
    assert np.array_equal(np.asarray(picture), values)
    unit = (frame.fit(picture, "it", [])[0] + 1) / 2
    assert np.abs(unit - (values - low) / (2**bits - 1)).max() < 1e-6
    colors = Frame(SHAPE, 3, value_range=(0, 255))
    rgba = of_pillow(Image.new("RGBA", (4, 4), (9, 8, 7, 0)), "JPEG2000")
    assert colors.fit(read_picture(rgba, [], colors.decoding), "it", []).min() == 255, "still over the background"


def test_the_camera_s_orientation_is_applied_to_values_too(tmp_path):
    colors = np.random.default_rng(0).integers(0, 65536, (*SHAPE, 3)).astype(np.uint16)
    for orientation in range(1, 9):
        (tmp_path / "a.tif").write_bytes(tiff(colors, photometric="rgb", extratags=[(274, "H", 1, orientation, True)]))
        values = read_picture(tmp_path / "a.tif", [], Decoding(as_values=True))
        expected = np.asarray(read_picture(tmp_path / "a.tif", []))
        assert np.array_equal(values >> 8, expected), orientation


def test_colors_of_16_bits_that_pillow_reduces_are_noted_and_refused_where_depth_is_kept(tmp_path):
    colors = np.stack([IN_16_BITS] * 3, -1)
    jpeg_2000 = of_pillow(Image.new("RGB", (8, 8)), "JPEG2000")
    size = jpeg_2000.index(b"\xff\x51") + 40
    files = {
        "a.ppm": b"P6\n10 8\n65535\n" + colors.astype(">u2").tobytes(),
        "a.jp2": jpeg_2000[:size] + b"\x0f" + jpeg_2000[size + 1 :],  # says 16 bits
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            RefusedInput, match=f"{name} cannot be read as an image: Pillow reduces the 16-bit colors of"
        ):
            read_picture(tmp_path / name, [], Decoding(as_values=True))
    notes = []
    read_picture(tmp_path / "a.ppm", notes)
    assert notes == ["16 bits, scaled to 8"]


def test_values_that_are_no_numbers_or_no_image_are_refused(tmp_path):
    for name, values, reason in (
        ("complex.npy", np.ones(SHAPE, np.complex64), "has complex64 values, expected integers or real numbers"),
        ("row.npy", np.ones(8), "its shape is (8,), expected (height, width)"),
        ("stack.npy", np.ones((2, 8, 10, 3)), "its shape is (2, 8, 10, 3), expected (height, width)"),
        ("inks.tif", None, "16-bit cyan, magenta, yellow and black channels"),
    ):
        content = tiff(np.stack([IN_16_BITS] * 4, -1), photometric="separated") if values is None else npy(values)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RefusedInput, match=re.escape(reason)):
            read_at(tmp_path / name, Frame(SHAPE, 3, dtype="float32"))


def test_differences_of_large_values_are_kept(tmp_path):
    np.save(tmp_path / "a.npy", 10**9 + RAMP)
    image = read_at(tmp_path / "a.npy", Frame(SHAPE, 1, dtype="float32", value_range=(10**9, 10**9 + 79)))
    torch.testing.assert_close(image[0, 0], torch.from_numpy(RAMP / 79).float(), rtol=0, atol=1e-6)


def packs(tmp_path, files, data=Folder, **settings):
    for name, content in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    given = {"image_size": SHAPE, "channels": 1, "cache": str(tmp_path / "cache"), **settings}
    return data(str(tmp_path / "in"), **given)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_pack_that_uses_little_of_its_range_says_so_and_names_the_range(tmp_path, caplog, dtype):
    values = np.linspace(0, 4095, 80).round().astype(np.uint16).reshape(SHAPE)
    files = {"a.png": deep_png(values)}
    assert packs(tmp_path, files, dtype=dtype).packed is not None
    said = r"uint16 files use only 6\.[23]% of the range from 0 to 65535: data.value_range=\[0,4095\]"
    assert re.search(said, caplog.text)
    caplog.clear()
    full = packs(tmp_path, files, dtype=dtype, value_range=(0, 4095)).packed
    assert "of the range" not in caplog.text
    unit = full.images[0, 0].double() / 255 if dtype == "uint8" else (full.images[0, 0].double() + 1) / 2
    torch.testing.assert_close(unit, torch.from_numpy(values / 4095), rtol=0, atol=0.002)
    assert packs(tmp_path, files, value_range=(0, 40950)).packed is not None
    assert "uint16 files use only 10.2% of the range from 0 to 40950" in caplog.text
    packs(tmp_path, files, dtype=dtype).packed.verify()


def test_each_side_of_pairs_and_each_domain_is_compared_with_its_own_range(tmp_path, caplog):
    bright = of_pillow(Image.fromarray(np.linspace(0, 255, 80).reshape(SHAPE).astype(np.uint8)), "PNG")
    dark = deep_png(np.linspace(0, 1023, 80).astype(np.uint16).reshape(SHAPE))
    files = {"A/a.png": bright, "B/a.png": dark}
    for data in (PairedFolder, Unpaired):
        caplog.clear()
        assert packs(tmp_path, files, data).packed is not None
        assert "B uint16 files use only 1.6% of the range from 0 to 65535: store all files with" in caplog.text
        assert "data.value_range=[" not in caplog.text, "A would be dark"
        assert "A uint8" not in caplog.text


def test_the_sides_of_a_pair_have_their_own_depth(tmp_path, caplog):
    dark = of_pillow(Image.fromarray(np.stack([RAMP + 10] * 3, -1).astype(np.uint8)), "PNG")
    for bright in (deep_png(IN_16_BITS), deep_png(np.stack([IN_16_BITS] * 3, -1))):  # Pillow reduces colors only
        caplog.clear()
        assert packs(tmp_path, {"A/a.png": bright, "B/a.png": dark}, PairedFolder).packed is not None
        assert "B uint8 files use only 31.0% of the range from 0 to 255" in caplog.text
        assert "uint16" not in caplog.text.partition("B uint8")[2]


def test_an_evaluated_folder_follows_the_rule_and_names_its_own_keys(tmp_path, caplog):
    (tmp_path / "ct.tif").write_bytes(tiff(CT))
    with pytest.raises(
        RefusedInput, match=re.escape("and the value range of pixels with a sign is unknown: add value_range=[LOW,")
    ):
        next(PictureFolder(tmp_path).real_batches(1))
    (image,) = PictureFolder(tmp_path, value_range=(-1024.0, 3056.0)).real_batches(1)
    assert (image.min(), image.max(), image.shape) == (0, 255, (1, 3, *SHAPE))
    assert "clipped" not in caplog.text
    assert len([*PictureFolder(tmp_path, value_range=(0.0, 3056.0)).real_batches(1)]) == 1
    assert f"{tmp_path}: 1 files with values outside value_range, which are clipped" in caplog.text
    (tmp_path / "ct.tif").unlink()
    (tmp_path / "dark.png").write_bytes(deep_png(np.linspace(0, 4095, 80).astype(np.uint16).reshape(SHAPE)))
    folder = PictureFolder(tmp_path)
    for _ in range(2):
        assert len([*folder.real_batches(1)]) == 1
    assert caplog.text.count("the values of its 16-bit files range only from 0 to 16") == 1


def test_a_survey_counts_values_of_an_unknown_range_and_gives_the_reason(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiff(CT))
    with pytest.raises(RefusedInput, match=r"none of the 1 images that were opened can be read: .*a.tif has int16"):
        survey([tmp_path / "a.tif"])
    Image.new("RGB", (20, 20)).save(tmp_path / "b.png")
    found = survey([tmp_path / "a.tif", tmp_path / "b.png"])
    (reason,) = found.unreadable
    assert "add data.value_range=[LOW,HIGH]" in reason
    assert found.width == 20
    assert survey([tmp_path / "a.tif"], frame=Frame(None, 3, value_range=(-1024.0, 3056.0))).unreadable == ()


# ---- pictures of many pixels


@pytest.fixture
def huge(tmp_path):
    """The path of a picture of 200 megapixels, of few bytes."""
    Image.new("1", (20_000, 10_000)).save(tmp_path / "huge.png", compress_level=1)
    return tmp_path / "huge.png"


def test_an_image_of_200_megapixels_is_an_error_of_every_reader_that_names_the_key(huge, tmp_path):
    limit = Image.MAX_IMAGE_PIXELS
    said = re.escape(
        "huge.png is 20000x10000 pixels, 200000000 in all, which exceeds {}max_pixels=178956970, the limit"
    )
    allowed = "add {0}max_pixels=200000000, or {0}max_pixels=null"
    data = partial(Folder, str(tmp_path), image_size=8, channels=1, cache=str(tmp_path / "cache"))
    for keys, read in (
        ("data.", lambda: data().packed),
        ("data.", lambda: survey([huge])),
        ("", lambda: next(PictureFolder(tmp_path).real_batches(1))),
    ):
        with pytest.raises(RefusedInput, match=said.replace(r"\{\}", keys)) as refused:
            read()
        assert allowed.format(keys) in str(refused.value)
    assert data(max_pixels=200_000_000).packed.images.shape == (1, 1, 8, 8)
    assert limit == Image.MAX_IMAGE_PIXELS, "Pillow's own limit is not changed"


def test_a_smaller_limit_holds_for_files_of_any_kind(tmp_path):
    Image.new("L", (12, 10)).save(tmp_path / "a.png")
    (tmp_path / "b.tif").write_bytes(tiff(RAMP.astype(np.float64)))
    (tmp_path / "c.npy").write_bytes(npy(RAMP))
    (tmp_path / "d.npy").write_bytes(npy(np.zeros((3, *SHAPE))))
    for name in ("a.png", "b.tif", "c.npy", "d.npy"):
        with pytest.raises(RefusedInput, match=rf"{name} is 1.x.* data.max_pixels=79, the limit"):
            read_picture(tmp_path / name, [], Decoding(True, 79))


@pytest.mark.parametrize("shape", [(10**7, 10**7), (10**7, 1, 10**7)])
def test_an_array_of_few_bytes_that_states_many_is_refused_before_it_is_read(tmp_path, shape):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    files = {"a.npy": head.getvalue() + b"12345", "b.npy": npy(RAMP.astype(np.uint8))}
    assert len(packs(tmp_path, files, on_error="skip", max_pixels=None).packed.images) == 1
    with pytest.raises(RefusedInput, match=r"a.npy cannot be read as an image: it is cut off: it holds fewer values"):
        read_picture(tmp_path / "in/a.npy", [], Decoding(max_pixels=None))


@pytest.mark.parametrize("command", [evaluate, sample, project])
def test_commands_have_the_same_limit(command):
    """The default is written out in their signatures, from which `--help` is read without an import."""
    assert inspect.signature(command).parameters["max_pixels"].default == MAX_PIXELS


def test_pillow_s_own_limit_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    values = np.random.default_rng(0).integers(0, 256, (12, 20), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(of_pillow(Image.fromarray(values), "PNG"))
    image = Frame(12, 1).fit(read_picture(tmp_path / "a.png", []), "it", [])
    assert np.array_equal(image[0], values[:, 4:16])


@pytest.mark.parametrize("bits", [16, 32, -32])
def test_fits_of_more_than_8_bits_is_refused(tmp_path, bits):
    """Pillow reads it without its scale and zero."""
    cards = ["SIMPLE  =                    T", f"BITPIX  = {bits:20d}", "NAXIS   =                    2"]
    cards += [
        "NAXIS1  =                    4",
        "NAXIS2  =                    4",
        "BZERO   =                32768",
        "END",
    ]
    head = "".join(card.ljust(80) for card in cards).ljust(2880).encode()
    (tmp_path / "a.fits").write_bytes(head + bytes(2880))
    with pytest.raises(RefusedInput, match="FITS with more than 8 bits is not supported: convert it to TIFF"):
        read_picture(tmp_path / "a.fits", [])
