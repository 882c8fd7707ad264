"""`lit-gans pack format=stylegan`: the archive that is written, and what it cannot hold."""

import json
import zipfile

import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed.stylegan import refuse_for_stylegan, write_stylegan
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.unpaired import Unpaired
from tests.data.conftest import NUM


@pytest.mark.parametrize("channels", [1, 3])
def test_an_archive_has_the_packed_images_and_their_classes(make, tmp_path, channels):
    data = make(image_size=8, channels=channels)
    write_stylegan(data, tmp_path / "out" / "photos.zip")
    with zipfile.ZipFile(tmp_path / "out" / "photos.zip") as archive:
        members = archive.infolist()
        labels = json.loads(archive.read("dataset.json"))["labels"]
    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}
    names = [f"00000/img{index:08d}.png" for index in range(NUM)]
    assert [member.filename for member in members] == [*names, "dataset.json"]
    assert labels == [[name, label] for name, label in zip(names, data.packed.labels.tolist(), strict=True)]
    again = Folder(
        str(tmp_path / "out/photos.zip"), image_size=8, channels=channels, batch_size=4, cache=str(tmp_path / "again")
    )
    assert torch.equal(again.packed.images, data.packed.images)
    assert torch.equal(again.packed.labels, data.packed.labels)
    assert again.digests()["images"] == data.digests()["images"]


def test_without_classes_the_labels_are_null(tmp_path):
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "flat/a.png")
    data = Folder(str(tmp_path / "flat"), image_size=8, batch_size=1, cache=str(tmp_path / "cache"))
    for name in ("a.zip", "b.zip"):
        write_stylegan(data, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert json.loads(archive.read("dataset.json")) == {"labels": None}
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes(), "the same archive every time"


def test_ten_thousand_images_are_in_folders_of_a_thousand(make, tmp_path, monkeypatch):
    data = make(image_size=1, channels=1)
    images = torch.zeros(2001, 1, 1, 1, dtype=torch.uint8)
    packed = type(data.packed)(data.packed.path, images, torch.zeros(2001, dtype=torch.long), {}, [])
    monkeypatch.setattr(data, "_packed", packed)
    write_stylegan(data, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert [names[index] for index in (999, 1000, 2000)] == [
        "00000/img00000999.png",
        "00001/img00001000.png",
        "00002/img00002000.png",
    ]


@pytest.mark.parametrize(
    ("settings", "name", "sentence"),
    [
        ({}, "a.tar", r"output=a.tar: format=stylegan writes a zip archive, whose name must end with .zip"),
        ({"channels": 4}, "a.zip", r"the images have 4 channels of uint8: set data.channels=3 or 1"),
        ({"dtype": "float32"}, "a.zip", r"the images have 3 channels of float32"),
        ({"image_size": [4, 6]}, "a.zip", r"the images are 4 high and 6 wide, expected squares: set data.image_size=4"),
    ],
)
def test_images_that_the_format_cannot_hold(make, settings, name, sentence, tmp_path):
    with pytest.raises(RefusedInput, match=sentence):
        refuse_for_stylegan(make(**settings), tmp_path.relative_to(tmp_path) / name)


def test_two_domains_are_no_data_set_of_stylegan(tmp_path):
    for name in "AB":
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    with pytest.raises(RefusedInput, match="Unpaired has pairs, or images of two domains"):
        refuse_for_stylegan(Unpaired(str(tmp_path), image_size=8), tmp_path / "a.zip")


def test_a_size_that_is_no_power_of_two_is_told(make, tmp_path, caplog):
    refuse_for_stylegan(make(image_size=8), tmp_path / "a.zip")
    assert not caplog.text
    refuse_for_stylegan(make(image_size=10), tmp_path / "a.zip")
    assert "trains only on sizes that are powers of two" in caplog.text
