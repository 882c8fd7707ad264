import colorsys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import features

from lit_gans.callbacks import PairedMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import WHITE
from lit_gans.data.sources import emoji
from lit_gans.data.sources.emoji import (
    GROUPS,
    NOTO,
    BitmapDrawings,
    Drawings,
    Emoji,
    EmojiFonts,
    EmojiLines,
    _LinesAndDrawings,
    code_points,
    group_of,
    openmoji_folder,
)
from tests.data.sources.bitmap_font import write_font


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Emoji(image_size=8, cache=str(tmp_path_factory.mktemp("emoji")))


def drawn(*codes, size=32, background=WHITE):
    return np.asarray(Drawings([codes], size, background).picture(0, []))


def test_skin_tones_and_trademarks_are_left_out():
    codes = code_points()
    assert len(codes) == 2093
    assert (0x1F44B,) in codes
    assert not {(0x1F44B, 0x1F3FD), (0xF8FF,)} & {*codes}


@pytest.mark.runs
def test_all_are_packed_and_hardly_two_are_alike(small):
    images = small.packed.images
    assert images.shape == (2093, 3, 8, 8)
    assert len(images.flatten(1).unique(dim=0)) >= 2060  # flags of some islands are those of their country
    assert small.packed.labels.bincount().tolist() == [132, 395, 215, 131, 127, 375, 397, 321]
    drawings = Drawings(code_points(), 8, WHITE)
    lemon = drawings.codes.index((0x1F34B,))
    drawn_large = np.asarray(drawings.draw(lemon)).reshape(8, 4, 8, 4, 3).mean((1, 3))
    assert np.abs(images[lemon].numpy() - drawn_large.transpose(2, 0, 1)).max() <= 0.51, "means of 4x4 pixels"


def test_drawings_have_their_colors_and_their_place():
    lemon = drawn(0x1F34B).astype(float)
    red, green, blue = lemon[lemon.min(2) < 250].mean(0)
    assert min(red, green) > 150 > 130 > blue, "yellow"
    square = drawn(0x1F7E5)  # a red square fills the middle
    assert square[16, 16, 0] > 180 > 100 > square[16, 16, 1]
    rows, columns = np.nonzero(square.min(2) < 250)
    for first, last in ((rows.min(), rows.max()), (columns.min(), columns.max())):
        assert 0 < first < 8, "nothing is cropped"
        assert 24 < last < 31
        assert abs(first - (31 - last)) <= 2, "in the middle"


def test_in_a_rectangle_they_are_as_large_as_the_shorter_side():
    square, wide = drawn(0x1F7E5).astype(int), drawn(0x1F7E5, size=(32, 56)).astype(int)
    assert wide.shape == (32, 56, 3)
    assert np.abs(wide[:, 12:44] - square).max() <= 8, "the font is placed to a quarter of a pixel"
    assert (wide[:, :12] == 255).all()


def test_several_code_points_are_one_drawing():
    woman, rocket, astronaut = drawn(0x1F469), drawn(0x1F680), drawn(0x1F469, 0x200D, 0x1F680)
    assert (astronaut[:, 0] == 255).all()
    assert (astronaut[:, -1] == 255).all()
    assert not (astronaut == woman).all()
    assert not (astronaut == rocket).all()


def test_background_and_transparency(tmp_path):
    assert drawn(0x1F34B, background=(0, 0, 255))[0, 0].tolist() == [0, 0, 255]
    clear = drawn(0x1F34B, background=None)
    assert clear.shape == (32, 32, 4)
    assert clear[0, 0, 3] == 0
    assert clear[16, 16, 3] == 255
    data = Emoji(image_size=4, channels=4, cache=str(tmp_path))
    assert data.source().background is None


@pytest.mark.parametrize(
    ("codes", "group"),
    [
        ((0x1F600,), "faces"),
        ((0x1F469, 0x200D, 0x1F680), "people"),
        ((0x2764, 0xFE0F), "symbols"),
        ((0x1F1E9, 0x1F1EA), "flags"),
        ((0x1F3F4, 0xE0067), "flags"),
        ((0x1F1E9,), "symbols"),
    ],
)
def test_groups(codes, group):
    assert GROUPS[group_of(codes)] == group


def test_a_pillow_without_raqm_is_refused(monkeypatch):
    emoji.openmoji_folder.cache_clear()
    monkeypatch.setattr(features, "check", lambda name: False)
    with pytest.raises(RefusedInput, match="needs a Pillow with Raqm"):
        Emoji()


def test_every_tenth_emoji_is_held_out_of_training(small, monkeypatch, tmp_path):
    drawings, codes = small.packed.images[:45], code_points()[:45]
    monkeypatch.setattr(emoji, "code_points", lambda: codes)
    lines, held_out = EmojiLines(image_size=8, cache=str(tmp_path)), torch.arange(45) % 10 == 9
    assert lines.halves(lines.packed.images)["image"].equal(drawings[~held_out])
    assert lines.held_out["image"].equal(drawings[held_out])
    assert len(lines.held_out["input"]) == len(lines.held_out["image"]) == 4


def test_a_background_on_which_no_line_is_visible_is_refused():
    for background in ((0, 0, 0), (63, 0, 63)):
        with pytest.raises(RefusedInput, match=r"data.background=\[.*\]: black lines would not be visible"):
            EmojiLines(background=background)
    lines, _ = _LinesAndDrawings([(0x1F34B,)], 32, EmojiLines(background=(0, 64, 0)).frame.background).picture(0, [])
    assert np.asarray(lines).max() == 64


def test_lines_are_the_dark_pixels_and_nothing_else():
    lines, drawing = map(np.asarray, _LinesAndDrawings([(0x1F34B,)], 32, WHITE).picture(0, []))  # a lemon
    assert lines.shape == drawing.shape == (32, 32, 3)
    assert (lines.min(2) == lines.max(2)).all(), "no color is left"
    outline = lines[..., 0] < 128
    assert outline.sum() > 30
    assert drawing[outline].max(1).mean() < 128, "lines are dark in the drawing too"
    yellow = (drawing[..., 0] > 150) & (drawing[..., 2] < 130)
    assert yellow.sum() > 100
    assert lines[yellow].mean() > 200, "the filling is not part of the lines"


CODES = [codes[0] for codes in code_points() if len(codes) == 1][100:130]
COLORS = {
    code: tuple(round(255 * each) for each in colorsys.hsv_to_rgb(number / len(CODES), 1, 1))
    for number, code in enumerate(CODES)
}


@pytest.fixture(scope="module")
def font(tmp_path_factory):
    """A font that draws 30 emoji, and a code point that OpenMoji has not."""
    return write_font(tmp_path_factory.mktemp("font") / "bitmaps.ttf", COLORS | {0x41: (0, 0, 0)})


@pytest.fixture
def data(font, tmp_path):
    return EmojiFonts(font=str(font), image_size=16, batch_size=4, cache=str(tmp_path))


def test_every_fifth_of_the_emoji_of_both_fonts_is_held_out(data):
    assert data.codes == [(code,) for code in CODES]
    assert len(data.held_out["input"]) == len(data.held_out["image"]) == 6
    trained = [each.codes for each in data.domains()]
    held_out = [each.codes for each in data.domains(held_out=True)]
    assert trained[0] == trained[1]
    assert held_out[0] == held_out[1] == [(code,) for code in CODES[4::5]]
    assert sorted(trained[0] + held_out[0]) == data.codes


def test_held_out_drawings_are_pairs(data):
    drawn = Drawings([(code,) for code in CODES[4::5]], 16, WHITE)
    for index, code in enumerate(CODES[4::5]):
        picture = np.asarray(drawn.picture(index, [])).transpose(2, 0, 1)
        assert np.array_equal(data.held_out["input"][index].numpy(), picture)
        assert tuple(data.held_out["image"][index, :, 8, 8].tolist()) == COLORS[code]


@pytest.mark.parametrize("size", [32, (32, 48)])
def test_bitmaps_are_in_the_middle_as_large_as_openmoji(font, size):
    picture = np.asarray(BitmapDrawings([(CODES[0],)], size, WHITE, font).picture(0, []))
    rows, columns = np.nonzero((picture != 255).any(2))
    shorter = min(picture.shape[:2])
    assert rows.max() - rows.min() + 1 == 128
    assert 128 / shorter == pytest.approx(0.74, abs=0.005)
    assert abs(picture.shape[0] - 1 - rows.min() - rows.max()) <= 1
    assert abs(picture.shape[1] - 1 - columns.min() - columns.max()) <= 1
    height, width = (size, size) if size == 32 else size
    assert picture.shape[1] / picture.shape[0] == pytest.approx(width / height, rel=0.01)


def test_both_directions_are_measured_on_true_pairs(data, tiny_gan, fit):
    measured = PairedMetrics()
    fit(tiny_gan("cyclegan", channels=3), data, max_steps=1, callbacks=[measured])
    assert measured.values.keys() == {"metric/l1", "metric/l1_b_to_a"}


def test_other_fonts_are_refused(tmp_path):
    with pytest.raises(
        RefusedInput, match=r"109 pixels \(.*`apt install fonts-noto-color-emoji` .*: cannot open resource"
    ):
        EmojiFonts(font=str(tmp_path / "none.ttf"))
    outlines = EmojiFonts(font=str(openmoji_folder() / "font" / "glyf_colr0.ttf"), cache=str(tmp_path))
    with pytest.raises(RefusedInput, match="has no color bitmaps of 136x128 pixels"):
        outlines.prepare_data()


@pytest.mark.skipif(not Path(NOTO).is_file(), reason="Debian's fonts-noto-color-emoji is not installed")
def test_faces_of_both_are_equally_large(tmp_path):
    data = EmojiFonts(image_size=64, cache=str(tmp_path))
    assert len(data.codes) > 1900
    boxes = []
    for source in (Drawings, BitmapDrawings):
        picture = source([(0x1F600,)], 64, WHITE, *([Path(NOTO)] if source is BitmapDrawings else [])).picture(0, [])
        dark = np.asarray(picture.resize((64, 64))).min(2) < 200
        boxes.append([(each.min(), each.max()) for each in np.nonzero(dark)])
    assert np.abs(np.subtract(*boxes)).max() <= 3


def test_lines_without_channels_are_refused():
    with pytest.raises(RefusedInput, match=r"^input_channels=0 must be 1 or 3\."):
        EmojiLines(input_channels=0)
