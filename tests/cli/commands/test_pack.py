"""`lit-gans pack`, and training on what it packed."""

import pytest
from PIL import Image

from tests.commands import TINY, TINY_CLI


@pytest.mark.runs
def test_a_packed_folder_streams(ran, refused, tmp_path, monkeypatch):
    pytest.importorskip("litdata")
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for index in range(16):
        Image.new("RGB", (16, 16), (4 * index, 0, 0)).save(tmp_path / "photos" / f"{index}.png")
    size = "data.image_size=16"
    assert "as a stream: remote" in ran("pack", "data.root=photos", "stream=remote", size)
    assert "remote is not empty" in refused("pack", "data.root=photos", "stream=remote", size)
    tiny = [item for item in TINY if not item.startswith("data")]
    stream = ["data=streaming", "data.root=local:remote", f"data.cache={tmp_path / 'fetched'}", "data.num_workers=0"]
    ran("train", *tiny, *stream, size, "data.batch_size=8", "trainer.max_steps=3")


@pytest.mark.runs
def test_a_folder_of_photographs_packs_and_trains(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for index in range(64):
        Image.new("RGB", (20 + index, 30), (4 * index, 0, 0)).save(tmp_path / "photos" / f"{index}.jpg")
    assert "64 images of 64x64, 3 channels, checksum correct" in ran("pack", "data.root=photos")
    out = ran(*TINY_CLI, "--data", "Folder", "--data.root=photos", "--data.on_error=skip", "--trainer.max_steps=1")
    assert "packed" not in out, "packed already"
