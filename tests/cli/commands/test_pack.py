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


def test_an_archive_does_not_replace_the_original_pictures(ran, refused, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (20, 16)).save(tmp_path / "photos/a.png")
    arguments = ["data=folder", "data.image_size=16", "format=stylegan"]
    ran("pack", *arguments, "data.root=photos", "output=photos.zip")
    before = (tmp_path / "photos.zip").read_bytes()
    said = refused("pack", *arguments, "data.root=photos.zip", "output=./photos.zip", "data.image_size=8")
    assert "is data.root, whose pictures it would replace" in said
    assert (tmp_path / "photos.zip").read_bytes() == before


@pytest.mark.runs
def test_an_archive_for_stylegan_packs_trains_and_is_evaluated(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    for index in range(16):
        path = tmp_path / "photos" / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (16 * index, 0, 0)).save(path)
    size = "data.image_size=16"
    out = ran("pack", "data=folder", "data.root=photos", "format=stylegan", "output=new/photos.zip", size)
    assert "for StyleGAN: new/photos.zip" in out
    assert "for StyleGAN: folder-16-" in ran("pack", "data=folder", "data.root=photos", "format=stylegan", size)
    out = ran("pack", "data=folder", "data.root=new/photos.zip", size)
    assert "16 images of 16x16, 3 channels, checksum correct" in out
    tiny = [item for item in TINY if not item.startswith("data")]
    archive = ["data=folder", "data.root=new/photos.zip", "data.batch_size=8", "model.num_classes=2"]
    ran("train", *tiny, *archive, size, "trainer.max_steps=3")
    out = ran("evaluate", "fake=new/photos.zip", "real=photos", "metrics=digits", "image_size=16")
    assert "num_samples: 16" in out
    assert "num_real: 16" in out
    assert (tmp_path / "new/evaluation_photos.zip.json").is_file()


@pytest.mark.runs
def test_a_folder_of_photographs_packs_and_trains(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for index in range(64):
        Image.new("RGB", (20 + index, 30), (4 * index, 0, 0)).save(tmp_path / "photos" / f"{index}.jpg")
    assert "64 images of 64x64, 3 channels, checksum correct" in ran("pack", "data.root=photos")
    out = ran(*TINY_CLI, "--data", "Folder", "--data.root=photos", "--data.on_error=skip", "--trainer.max_steps=1")
    assert "packed" not in out, "packed already"
