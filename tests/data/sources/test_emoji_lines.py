import numpy as np
import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import WHITE
from lit_gans.data.sources import emoji
from lit_gans.data.sources.emoji import Emoji, code_points
from lit_gans.data.sources.emoji_lines import EmojiLines, _LinesAndDrawings


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return EmojiLines(image_size=8, cache=str(tmp_path_factory.mktemp("lines")))


def test_every_tenth_drawing_is_held_out_and_the_others_train(small, tmp_path):
    drawings = Emoji(image_size=8, cache=str(tmp_path)).packed.images
    held_out = torch.arange(len(drawings)) % 10 == 9
    assert small.halves(small.packed.images)["image"].equal(drawings[~held_out])
    assert small.held_out["image"].equal(drawings[held_out])
    assert len(small.held_out["input"]) == len(small.held_out["image"]) == 209
    assert len(small.packed.images) == len(code_points(False)) - 209


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


def test_a_step_keeps_lines_and_drawing_together(small):
    batch = small.on_after_batch_transfer(next(iter(small.train_dataloader())), 0)
    assert batch["input"].shape == batch["image"].shape == (64, 3, 8, 8)
    pairs = small.halves(small.packed.images)
    for lines, drawing in zip(batch["input"][:5], batch["image"][:5], strict=True):
        index = (pairs["image"] == drawing).flatten(1).all(1)
        assert (pairs["input"][index] == lines).flatten(1).all(1).any()


def test_one_channel_is_gray():
    data = EmojiLines(image_size=8, channels=1)
    sides, _ = data.frame.fit(data.source().picture(0, []), "")
    assert sides.shape == (2, 8, 8)
    assert data.input_channels == 1


def test_a_missing_package_is_refused(monkeypatch):
    emoji._folder.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RefusedInput, match=r'pip install "lit-gans\[emoji\]"'):
        EmojiLines()
