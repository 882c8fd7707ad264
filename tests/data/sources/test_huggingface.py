import io
import os

import numpy as np
import pytest
from PIL import Image

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


def test_pictures_and_labels_of_a_parquet_file(make):
    data = make(label_column="kind")
    assert data.num_classes == 3
    packed = data.packed
    assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert packed.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert make().packed.labels.tolist() == [0] * 6
    assert make().num_classes == 0


def test_names_of_classes_are_numbered_in_their_order(make):
    assert make(label_column="animal").packed.labels.tolist() == [1, 0, 1, 0, 1, 2]


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
