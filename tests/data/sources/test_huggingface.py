import io
import os

import numpy as np
import pytest
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.huggingface import Huggingface

datasets = pytest.importorskip("datasets")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)


def png(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a datamodule on a parquet file as the hub holds them."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "hf"))
    images = [{"bytes": png(pixels), "path": None} for pixels in PIXELS]
    rows = {"image": images, "kind": [0, 1, 2, 0, 1, 2], "animal": ["dog", "cat", "dog", "cat", "dog", "emu"]}
    kinds = {"kind": datasets.Value("int64"), "animal": datasets.Value("string")}
    features = datasets.Features({"image": datasets.Image(), **kinds})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train.parquet")
    common = {"name": "parquet", "files": str(tmp_path / "train.parquet"), "image_size": 16, "batch_size": 2}
    return lambda **settings: Huggingface(**{**common, "cache": str(tmp_path / "cache"), **settings})


def test_images_and_labels_of_a_parquet_file(make):
    data = make(label_column="kind")
    assert data.num_classes == 3
    packed = data.packed
    assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert packed.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert make().packed.labels.tolist() == [0] * 6
    assert make().num_classes == 0


def test_names_of_classes_are_numbered_in_their_order(make):
    data = make(label_column="animal")
    assert data.packed.labels.tolist() == [1, 0, 1, 0, 1, 2]
    assert data.class_names == ["cat", "dog", "emu"]
    assert make(label_column="kind").class_names == make().class_names == []


def test_names_of_a_column_of_classes(make, tmp_path):
    rows = datasets.Dataset.from_parquet(str(tmp_path / "train.parquet"), cache_dir=str(tmp_path / "other"))
    kinds = datasets.ClassLabel(names=["red", "blue", "green", "unused"])
    rows.cast_column("kind", kinds).to_parquet(tmp_path / "named.parquet")
    data = make(files=str(tmp_path / "named.parquet"), label_column="kind")
    assert data.packed.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.class_names == ["red", "blue", "green"]


def test_a_gan_trains_with_the_classes_of_a_column(make, tiny_gan, fit):
    """It was refused: the data was taken for data without classes."""
    fit(tiny_gan("dcgan", channels=3, num_classes=3), make(label_column="animal"), 1)


def test_a_file_of_another_content_with_the_same_size_and_times_is_read_again(make, tmp_path):
    path = tmp_path / "train.parquet"
    images = make().packed.images.clone()
    stat = path.stat()
    table = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "other"))
    rows = table.cast_column("image", datasets.Image(decode=False)).to_dict()
    rows["image"] = rows["image"][::-1]
    datasets.Dataset.from_dict(rows, features=table.features).to_parquet(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert make().packed.images.tolist() == images.flip(0).tolist()


def test_rows_without_a_class_or_an_image_are_refused_or_left_out_and_names_are_composed(make, tmp_path):
    names = ["Gr\u00fcn", None, "Gru\u0308n ", "Rot", "Rot", "Rot"]
    images = [{"bytes": png(pixels), "path": None} for pixels in PIXELS[:5]] + [None]
    features = datasets.Features({"image": datasets.Image(), "color": datasets.Value("string")})
    rows = datasets.Dataset.from_dict({"image": images, "color": names}, features=features)
    rows.to_parquet(tmp_path / "train.parquet")
    with pytest.raises(RefusedInput, match=r"parquet row 1 has no class: its label is None"):
        _ = make(label_column="color").packed
    packed = make(label_column="color", on_error="skip").packed
    assert packed.labels.tolist() == [0, 0, 1, 1]
    assert [line.partition(" has")[0] for line in packed.about["skipped"]] == ["parquet row 1", "parquet row 5"]


def test_negative_labels_are_no_classes(make, tmp_path):
    images = [{"bytes": png(pixels), "path": None} for pixels in PIXELS]
    features = datasets.Features({"image": datasets.Image(), "kind": datasets.Value("int64")})
    rows = datasets.Dataset.from_dict({"image": images, "kind": [-1] * 6}, features=features)
    rows.to_parquet(tmp_path / "train.parquet")
    with pytest.raises(RefusedInput, match=r"parquet row 0 has no class: its label is -1"):
        _ = make(label_column="kind").packed


def test_images_that_the_package_does_not_list_are_counted(make, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index in range(3):
        (folder / f"{index}.png").write_bytes(png(PIXELS[index]))
    (folder / "a.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (folder / "notes.txt").write_text("no image")
    given = {"name": "imagefolder", "files": str(folder)}
    with pytest.raises(RefusedInput, match=r"data.name=imagefolder does not read 1 images in .*, such as .*a.heic"):
        _ = make(**given).packed
    packed = make(**given, on_error="skip").packed
    assert (len(packed.images), packed.about["skipped"]) == (3, ["a.heic is not read by data.name=imagefolder."])


def test_a_local_folder_is_identified_by_its_contents(make, tmp_path):
    (tmp_path / "set").mkdir()
    for index in range(2):
        (tmp_path / f"set/{index}.png").write_bytes(png(PIXELS[index]))
    local = {"name": str(tmp_path / "set"), "files": None}
    first = make(**local).packed
    assert np.array_equal(first.images.permute(0, 2, 3, 1).numpy(), PIXELS[:2])
    (tmp_path / "set").rename(tmp_path / "moved")
    moved = make(name=str(tmp_path / "moved"), files=None)
    assert moved.packed_path == first.path
    (tmp_path / "moved/1.png").write_bytes(png(PIXELS[3]))
    again = make(name=str(tmp_path / "moved"), files=None).packed
    assert np.array_equal(again.images.permute(0, 2, 3, 1).numpy(), PIXELS[[0, 3]])
    assert make(name=str(tmp_path / "moved"), files="0.png").packed_path != again.path


def test_depth_is_kept_and_its_range_is_known_or_refused(make, tmp_path):
    values = np.arange(256).reshape(16, 16)
    content = io.BytesIO()
    Image.fromarray((values * 250).astype(np.uint16)).save(content, "png")
    signed = io.BytesIO()
    Image.fromarray((values - 128).astype(np.int32)).save(signed, "tiff")
    features = datasets.Features({"image": datasets.Image()})
    for encoded in (content, signed):
        images = [{"bytes": encoded.getvalue(), "path": None}] * 2
        datasets.Dataset.from_dict({"image": images}, features=features).to_parquet(tmp_path / "train.parquet")
        data = make(channels=1, dtype="float32")
        if encoded is signed:
            with pytest.raises(RefusedInput, match=r"parquet row 0 has int32 values, here from -128 to 127"):
                _ = data.packed
        else:
            unit = (data.packed.images[0, 0].numpy() + 1) / 2
            assert np.abs(unit - values * 250 / 65535).max() < 1e-6
