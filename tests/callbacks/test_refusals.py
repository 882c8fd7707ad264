"""Settings, data and models that callbacks cannot work with, refused before the first iteration."""

from functools import partial

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn

from lit_gans import callbacks
from lit_gans.callbacks.watch import Watch
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.strategies.average import NetworkAverage
from tests.tiny import RandomImages, fit, random_images, tiny_gan


@pytest.mark.parametrize(
    ("callback", "wrong"),
    [
        (callbacks.RunCheckpoint, {"save_top_k": -1}),
        (callbacks.RunCheckpoint, {"train_time_interval": float("nan")}),
        (callbacks.StopOnPlateau, {"patience": 0}),
        (callbacks.EMA, {"decay": 1.0}),
        (callbacks.EMA, {"half_life": -1.0}),
        (callbacks.EMA, {"half_life": float("nan")}),
        (callbacks.EMA, {"decay": "most"}),
        (Watch, {"minutes": float("nan")}),
        (Watch, {"every_n_steps": 2.5}),
        (callbacks.Samples, {"every_n_steps": 2.5}),
        (callbacks.Samples, {"every_n_steps": True}),
        (callbacks.Samples, {"num": None}),
        (callbacks.RunCheckpoint, {"every_n_train_steps": 2.5}),
        (callbacks.RunCheckpoint, {"train_time_interval": True}),
        (callbacks.RunCheckpoint, {"monitor": 3}),
        (callbacks.RunCheckpoint, {"mode": "smaller"}),
        (callbacks.StopOnPlateau, {"patience": 2.5}),
        (callbacks.StopOnPlateau, {"mode": "smaller"}),
        (partial(callbacks.GenerativeMetrics, DigitsExtractor()), {"every_n_steps": 2.5}),
        (partial(callbacks.GenerativeMetrics, DigitsExtractor()), {"scores": ["fid"]}),
        (callbacks.GenerativeMetrics, {"extractor": "digits"}),
        (callbacks.PairedMetrics, {"num_samples": "many"}),
        (NetworkAverage, {"network": "generator", "decay": "most"}),
        (random_images, {"batch_size": 2.5}),
        (random_images, {"image_size": "small"}),
        (tiny_gan, {"generator_optimizer": None}),
        (tiny_gan, {"diffaugment": "color"}),
        (tiny_gan, {"diffaugment": ["colour"]}),
        (tiny_gan, {"r1_gamma": [1]}),
        (tiny_gan, {"augmentation": "ada"}),
        (callbacks.ModeMetrics, {"every_n_steps": 0}),
        (callbacks.Samples, {"frames_per_second": 0.0}),
        (callbacks.Samples, {"frames_per_second": 0.001}),  # the GIF failed after the last iteration
    ],
)
def test_values_out_of_range_or_of_another_type_are_refused_at_construction(callback, wrong):
    with pytest.raises(RefusedInput, match=rf"({'|'.join(wrong)})=.* (must |is not valid: expected )"):
        callback(**wrong)


class Other(LightningModule):
    """A module that is no GAN of this package."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch):
        return self.layer.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize(
    "callback",
    [
        callbacks.EMA(),
        callbacks.PowerEMA(),
        callbacks.Samples(),
        Watch(),
        callbacks.PathLength(),
        callbacks.InitFrom("zoo/dcgan_digits"),
    ],
    ids=lambda callback: type(callback).__name__,
)
def test_another_module_than_a_gan_is_refused(tmp_path, callback):
    """Lightning raised an AttributeError."""
    name = type(callback).__name__
    with pytest.raises(RefusedInput, match=f"^{name} supports only .* of Other: remove {name} from the callbacks.$"):
        fit(Other(), random_images(), 1, callbacks=[callback], default_root_dir=tmp_path)


def test_a_key_of_early_stopping_that_nothing_measures_is_refused_even_without_patience(tmp_path):
    stopping = callbacks.StopOnPlateau(monitor="metric/nonsense")
    with pytest.raises(RefusedInput, match=r"^monitor=metric/nonsense: nothing measures it"):
        fit(tiny_gan(), random_images(), 1, callbacks=[stopping], default_root_dir=tmp_path)


class Bands(RandomImages):
    possible_channels = None


@pytest.mark.parametrize(
    ("metrics", "name", "data", "sentence"),
    [
        (callbacks.ModeMetrics(), "dcgan", random_images(), "needs data with known modes: use data=ring"),
        (callbacks.PairedMetrics(), "dcgan", None, "needs pairs: use data=digit_edges"),
        (callbacks.PathLength(), "pix2pix", random_images(), "needs latents, but Pix2Pix translates images"),
        (callbacks.ReconstructionMetrics(), "pix2pix", random_images(), "use model=autoencoder_kl"),
        (callbacks.GenerativeMetrics(DigitsExtractor()), "dcgan", None, "need a datamodule with image_size, .*Source"),
        (
            callbacks.GenerativeMetrics(DigitsExtractor()),
            "dcgan",
            Bands(image_size=16, channels=5, batch_size=8),
            "measures images with 1, 3 or 4 channels",
        ),
    ],
)
def test_metrics_that_data_or_model_do_not_have_are_refused(tmp_path, metrics, name, data, sentence):
    channels = 1 if data is None else data.channels
    data = data or LightningDataModule.from_datasets(random_images().dataset, batch_size=8)
    with pytest.raises(RefusedInput, match=sentence):
        fit(tiny_gan(name, channels=channels), data, 1, callbacks=[metrics], default_root_dir=tmp_path)


@pytest.mark.parametrize("callback", [callbacks.RunCheckpoint, callbacks.Samples])
@pytest.mark.parametrize("url", ["memory://bucket/run", "file:///bucket/run"])
def test_a_url_as_the_run_folder_is_refused_and_nothing_is_written(tmp_path, monkeypatch, callback, url):
    monkeypatch.chdir(tmp_path)
    saves = callback is callbacks.RunCheckpoint
    with pytest.raises(
        RefusedInput, match=r"trainer\.default_root_dir=(memory|file):/.* is a URL, .* add the .* Mirror"
    ):
        fit(tiny_gan(), random_images(), 1, callbacks=[callback()], default_root_dir=url, enable_checkpointing=saves)
    assert not list(tmp_path.iterdir())
