"""A folder as the documentation assumes it: a trained run, and some images."""

import shutil

import pytest
import torch
from torchvision.utils import save_image

from lit_gans.cli import main as cli

TINY = [
    "trainer.max_steps=2",
    "trainer.accelerator=cpu",
    "model.generator_width=2",
    "model.discriminator_width=2",
    "trainer.log_every_n_steps=1",
    "callbacks.samples.num=4",
]
SMALL_METRICS = ["metrics.num_samples=40", "metrics.batch_size=40"]


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The folder of a tiny run of the default training."""
    folder = tmp_path_factory.mktemp("documented") / "version_0"
    assert cli.run(["train", *TINY, *SMALL_METRICS, f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def documented(tmp_path, tiny_run, monkeypatch):
    """A fresh current folder with what the pages name: a run, `photos`, `generated` images and pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("dcgan_digits", "pix2pix_paired_folder"):
        shutil.copytree(tiny_run, tmp_path / "outputs" / name / "version_0")
    for name in ("photos", "generated"):
        write_images(tmp_path / name, 80)
    for label in ("cats", "dogs"):
        write_images(tmp_path / "photos_by_class" / label, 40)
    for split in ("train", "val"):
        write_images(tmp_path / "facades" / split, 2, width=64)
    return tmp_path


def write_images(folder, num, width=32):
    """Writes `num` small random images."""
    folder.mkdir(parents=True)
    for index, image in enumerate(torch.rand(num, 3, 32, width, generator=torch.Generator().manual_seed(0))):
        save_image(image, folder / f"{index:03d}.png")
