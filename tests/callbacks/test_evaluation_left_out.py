"""Scores that the images do not allow, and what is refused before a training."""

import json

import pytest
from lightning.pytorch import LightningDataModule

from lit_gans.callbacks import Checkpoint, GenerativeMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import (
    FrechetInceptionDistance,
    InceptionScore,
    KernelInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.extractors.digits import DigitsExtractor

KID = {"kid": KernelInceptionDistance()}


@pytest.mark.parametrize("name", ["every_n_steps", "num_samples", "batch_size"])
def test_refusals(name):
    with pytest.raises(RefusedInput, match=f"{name}=0"):
        GenerativeMetrics(DigitsExtractor(), **{name: 0})


def test_a_score_that_so_few_images_do_not_allow_is_left_out_and_log_report_and_protocol_say_why(
    tiny_gan, random_images, fit, tmp_path, caplog
):
    scores = {
        "fid": FrechetInceptionDistance(),
        "kid": KernelInceptionDistance(),
        "prdc": PrecisionRecallDensityCoverage(nearest=50),
        "inception_score": InceptionScore(splits=31),
    }
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=60, scores=scores)
    fit(tiny_gan(), random_images(), 1, callbacks=[metrics])
    assert metrics.values.keys() == metrics.directions.keys() == {"metric/fid_digits"}
    reasons = {
        "inception_score": "60 generated images are too few for 31 splits",
        "kid": "60 images are too few for subset_size=1000",
        "prdc": "48 images are too few for nearest=50",  # the real ones, which are counted later
    }
    written = json.loads((tmp_path / "protocol.json").read_text())["metric/fid_digits"]
    assert written["left_out"] == metrics.left_out
    assert set(written["scores"]) == {"FrechetInceptionDistance"}
    for name, reason in reasons.items():
        assert metrics.left_out[name].startswith(reason)
        assert sum(f"{name} is left out: {reason}" in message for message in caplog.messages) == 1
        assert f"left out: {name} ({reason}" in "\n".join(metrics.summary())


def test_a_left_out_score_that_should_select_the_best_checkpoint_is_refused_with_the_reason(
    tiny_gan, random_images, fit
):
    metrics, checkpoint = (
        GenerativeMetrics(DigitsExtractor(), num_samples=60, scores={"fid": FrechetInceptionDistance(), **KID}),
        Checkpoint(monitor="metric/kid_digits"),
    )
    reason = (
        "nothing measures it; did you mean 'metric/.*'.* kid is left out: 60 images are too few for subset_size=1000"
    )
    with pytest.raises(RefusedInput, match=reason):
        fit(tiny_gan(), random_images(), 1, callbacks=[metrics, checkpoint], enable_checkpointing=True)


def test_too_few_samples_for_every_score_end_before_any_training(tiny_gan, random_images, fit):
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=40, scores=KID)
    module = tiny_gan()
    with pytest.raises(RefusedInput, match="no score can be measured: kid: 40 images are too few"):
        fit(module, random_images(), 1, callbacks=[metrics])


def test_data_that_serve_no_images_are_refused(tiny_gan, random_images, fit):
    data = LightningDataModule.from_datasets(random_images().dataset, batch_size=8)
    with pytest.raises(RefusedInput, match=r"need a datamodule with image_size, .*contracts.ImageSource"):
        fit(tiny_gan(), data, 1, callbacks=[GenerativeMetrics(DigitsExtractor())])


def test_no_score_at_all_is_refused():
    with pytest.raises(RefusedInput, match="no score is left"):
        GenerativeMetrics(DigitsExtractor(), scores={"fid": None, "inception_score": None})
