"""What is said when a training begins: large networks on a CPU, classes that are not used."""

from unittest.mock import create_autospec

import pytest
from lightning.pytorch import Trainer
from PIL import Image

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.cli import notices
from lit_gans.cli.notices import (
    long_training,
    slow_networks,
    unsuitable_metrics,
    unused_classes,
)
from lit_gans.data.sources.avatars import Avatars
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.points import Ring
from lit_gans.metrics.extractors.avatars import AvatarsExtractor
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.models.dcgan import DCGAN


def test_networks_that_are_large_for_a_cpu_are_reported_with_an_experiment_for_a_cpu(tiny_gan, monkeypatch):
    module = tiny_gan("r3gan")
    assert slow_networks(module) == []
    monkeypatch.setattr(notices, "_LARGE", 100)
    (said,) = slow_networks(module)
    num = sum(parameter.numel() for parameter in module.parameters())
    assert said.startswith(f"R3GAN has {num:,} parameters, and on a CPU")
    assert said.endswith("experiment=r3gan_digits has networks sized for a CPU")

    class Own(DCGAN):
        pass

    assert slow_networks(Own(generator_width=4, discriminator_width=4))[0].endswith("choose smaller networks")


@pytest.mark.parametrize("limits", [{"max_steps": 99_999}, {"max_steps": 100_000, "max_time": "00:01:00:00"}])
def test_a_training_that_may_take_days_says_so(limits):
    assert long_training(Trainer(accelerator="cpu", logger=False, **limits)) == []
    (said,) = long_training(Trainer(accelerator="cpu", logger=False, max_steps=100_000))
    assert said.startswith("100,000 iterations can take hours on a GPU and days on a CPU: trainer.max_steps=NUMBER")


@pytest.fixture
def folder(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            Image.new("RGB", (16, 16)).save(tmp_path / name)
        return Folder(root=str(tmp_path), image_size=16, channels=1)

    return make


def test_unused_classes_of_a_folder_are_reported(tiny_gan, folder, random_images):
    data = folder("cats/1.png", "dogs/1.png")
    (said,) = unused_classes(tiny_gan(), data)
    assert said.endswith("has 2 classes, which are not used: model.num_classes=2 trains with them")
    assert unused_classes(tiny_gan("pix2pix"), data)[0].endswith("which are not used")
    assert unused_classes(tiny_gan(num_classes=2), data) == []
    assert unused_classes(tiny_gan(), random_images()) == [], "of data that come with classes"
    assert unused_classes(tiny_gan(), folder("flat.png")) == []


def test_a_digit_classifier_that_measures_other_images_is_reported(folder):
    trainer = create_autospec(Trainer, instance=True)
    trainer.callbacks, trainer.datamodule = [GenerativeMetrics(DigitsExtractor())], folder("flat.png")
    (said,) = unsuitable_metrics(trainer)
    assert said.endswith("metrics=efficientnet_lite0 suits these images better")
    for trainer.datamodule in (Digits(), Ring()):
        assert unsuitable_metrics(trainer) == []
    trainer.callbacks, trainer.datamodule = [], folder("flat.png")
    assert unsuitable_metrics(trainer) == []
    trainer.callbacks, trainer.datamodule = [GenerativeMetrics(AvatarsExtractor())], Digits()
    assert unsuitable_metrics(trainer) == [
        "metrics=avatars uses the features of a network for cartoon faces; metrics=digits suits these images better"
    ]
    trainer.datamodule = Avatars(num_images=1)
    assert unsuitable_metrics(trainer) == []
