"""Settings, data and models that callbacks cannot work with, refused before the first iteration."""

import pytest
from lightning.pytorch import LightningDataModule

from lit_gans import callbacks
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.tiny import RandomImages, fit, random_images, tiny_gan


@pytest.mark.parametrize(
    ("callback", "wrong"),
    [
        (callbacks.Checkpoint, {"save_top_k": -1}),
        (callbacks.Checkpoint, {"train_time_interval": float("nan")}),
        (callbacks.EarlyStopping, {"patience": 0}),
        (callbacks.EMA, {"decay": 1.0}),
        (callbacks.EMA, {"half_life": -1.0}),
        (callbacks.ModeMetrics, {"every_n_steps": 0}),
        (callbacks.Samples, {"frames_per_second": 0.0}),
    ],
)
def test_numbers_out_of_range_are_refused(callback, wrong):
    with pytest.raises(RefusedInput, match=f"{next(iter(wrong))}=.* must "):
        callback(**wrong)


class Bands(RandomImages):
    possible_channels = None


@pytest.mark.parametrize(
    ("metrics", "name", "data", "sentence"),
    [
        (callbacks.ModeMetrics(), "dcgan", random_images(), "needs data whose modes are known: data=ring"),
        (callbacks.PairedMetrics(), "dcgan", None, "needs pairs: data=digit_edges"),
        (callbacks.ReconstructionMetrics(), "pix2pix", random_images(), "it needs model=autoencoder_kl"),
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
