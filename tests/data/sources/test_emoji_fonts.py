import colorsys
from pathlib import Path

import numpy as np
import pytest

from lit_gans.callbacks import PairedMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import WHITE
from lit_gans.data.sources.emoji import Drawings, code_points, openmoji_folder
from lit_gans.data.sources.emoji_fonts import NOTO, BitmapDrawings, EmojiFonts
from tests.data.sources.bitmap_font import write_font

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
    with pytest.raises(RefusedInput, match="this data has no pairs"):
        fit(tiny_gan("pix2pix", channels=3), data, max_steps=1)


def test_refusals(tmp_path):
    with pytest.raises(
        RefusedInput, match=r"109 pixels \(`apt install fonts-noto-color-emoji` .*: cannot open resource"
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
