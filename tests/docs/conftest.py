"""A folder as the documentation assumes it: a trained run, and some images."""

import io
import itertools
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from torchvision.utils import save_image

from lit_gans.cli import main as cli
from lit_gans.common.paths import cache_folder
from tests.data.sources.bitmap_font import write_font
from tests.data.sources.test_torchvision_sets import write_cifar
from tests.docs.running import SMALL_METRICS, TINY, WIDTHS


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker("docs")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The folder of a tiny run of the default training."""
    folder = tmp_path_factory.mktemp("documented") / "version_0"
    assert cli.run(["train", *TINY, *WIDTHS, *SMALL_METRICS, f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def documented(tmp_path, tiny_run, monkeypatch):
    """A fresh current folder with what the pages name: a run, `photos`, `generated` images and pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(tiny_run, tmp_path / "outputs" / "dcgan_digits" / "version_0")
    write_images(tmp_path / "photos", 64)  # a batch
    write_images(tmp_path / "generated", 16)
    for label in ("cats", "dogs"):
        write_images(tmp_path / "photos_by_class" / label, 32)
    rows = (f"{path.name},{('cat', 'dog')[index % 2]}" for index, path in enumerate((tmp_path / "photos").iterdir()))
    (tmp_path / "labels.csv").write_text("\n".join(["file,class", *rows]))
    for name, channels, dtype in (("bands", 12, np.uint16), ("heights", 1, np.float32)):
        (tmp_path / name).mkdir()
        for index in range(64):
            np.save(tmp_path / name / f"{index}.npy", np.zeros((32, 32, channels), dtype))
    for folder, split in itertools.product(("facades", "pairs"), ("train", "val")):
        write_images(tmp_path / folder / split, 2, width=64)
    for name in ("trainA", "trainB", "zebras"):
        write_images(tmp_path / "horse2zebra" / name, 2)
    write_font(tmp_path / "noto.ttf", {0x1F34B: (255, 255, 0)})
    write_cifar(cache_folder() / "torchvision", monkeypatch)
    write_parquet(tmp_path / "cifar10")
    yield tmp_path
    shutil.rmtree(cache_folder() / "torchvision")


def write_parquet(folder):
    """Writes a dataset as the Hugging Face hub stores CIFAR-10: encoded images in a column `img`, and `label`."""
    png = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(png, "png")
    rows = pyarrow.table({"img": [{"bytes": png.getvalue(), "path": None}] * 20, "label": [0, 1] * 10})
    folder.mkdir()
    pyarrow.parquet.write_table(rows, folder / "train-00000-of-00001.parquet")


def write_images(folder, num, width=32):
    """Writes `num` small random images."""
    folder.mkdir(parents=True)
    for index, image in enumerate(torch.rand(num, 3, 32, width, generator=torch.Generator().manual_seed(0))):
        save_image(image, folder / f"{index:03d}.png")
