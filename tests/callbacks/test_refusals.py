"""Settings, data and models that callbacks cannot work with, refused before the first iteration."""

import pytest
from lightning.pytorch import LightningDataModule

from lit_gans.callbacks import (
    EMA,
    Checkpoint,
    EarlyStopping,
    GenerativeMetrics,
    ModeMetrics,
    PairedMetrics,
    ReconstructionMetrics,
    Samples,
    Watch,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.tiny import RandomImages, fit, random_images, tiny_gan


@pytest.mark.parametrize(
    ("callback", "wrong"),
    [
        (Checkpoint, {"every_n_train_steps": 0}),
        (Checkpoint, {"save_top_k": -1}),
        (Checkpoint, {"train_time_interval": float("nan")}),
        (EarlyStopping, {"patience": 0}),
        (EMA, {"decay": 1.0}),
        (EMA, {"half_life": -1.0}),
        (ModeMetrics, {"every_n_steps": 0}),
        (Samples, {"frames_per_second": 0.0}),
        (Watch, {"patience": 0}),
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
        (ModeMetrics(), "dcgan", random_images(), "needs data whose modes are known: data=ring"),
        (PairedMetrics(), "dcgan", None, "needs pairs: data=digit_edges"),
        (ReconstructionMetrics(), "pix2pix", random_images(), "it needs model=autoencoder_kl"),
        (GenerativeMetrics(DigitsExtractor()), "dcgan", None, "need a datamodule with image_size, .*ImageSource"),
        (
            GenerativeMetrics(DigitsExtractor()),
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
