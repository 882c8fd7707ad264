import csv
import json
from contextlib import contextmanager

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger

from lit_gans.callbacks import EMA, Checkpoint, GenerativeMetrics, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.data.images import to_uint8
from lit_gans.metrics import (
    FrechetInceptionDistance,
    InceptionScore,
    KernelInceptionDistance,
    MemorizationInformedFrechetInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.cache import fingerprint
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.digits import DigitsExtractor

KEYS = ("metric/fid_digits", "metric/is_digits", "metric/is_spread_digits")


@pytest.fixture
def metrics():
    return GenerativeMetrics(DigitsExtractor(), every_n_steps=2, num_samples=40, batch_size=16)


def test_training_is_bitwise_the_same_with_and_without_evaluation(tiny_gan, random_images, fit, metrics):
    first, second = tiny_gan(), tiny_gan()
    fit(first, random_images(), max_steps=5, callbacks=[EMA(), metrics, Samples(every_n_steps=1, num=4)])
    fit(second, random_images(), max_steps=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_measures_at_zero_in_between_and_at_the_end(tiny_gan, random_images, fit, metrics):
    seen, original = [], metrics._measure
    metrics._measure = lambda trainer, module: (seen.append(trainer.global_step), original(trainer, module))
    trainer = fit(tiny_gan(), random_images(), max_steps=5, callbacks=[EMA(), metrics])
    assert seen == [0, 2, 4, 5]
    assert set(metrics.values) == {*KEYS, "metric/classes_covered"}
    assert trainer.callback_metrics["metric/fid_digits"].item() == pytest.approx(metrics.values["metric/fid_digits"])
    assert metrics.first != metrics.values
    assert "at iteration 5" in "\n".join(metrics.summary())


def test_measures_the_averaged_generator(tiny_gan, random_images, fit, metrics):
    module = tiny_gan()
    fit(module, random_images(), max_steps=2, callbacks=[EMA(), metrics])
    values = dict(metrics.values)
    with torch.no_grad():
        for parameter in module.generator.parameters():
            parameter.mul_(0)
    trainer = fit(tiny_gan(), random_images(), max_steps=0)
    trainer.fit_loop.epoch_loop.max_steps = 0
    metrics._measure(trainer_of(trainer, random_images()), module)
    assert metrics.values == values, "the raw generator does not matter"


def trainer_of(trainer, data):
    trainer._data_connector.attach_datamodule(trainer.lightning_module, data)
    return trainer


def test_values_are_those_of_the_sampling_generator_against_all_real_images(tiny_gan, random_images, fit, metrics):
    module, data = tiny_gan(), random_images()
    fit(module, data, max_steps=2, callbacks=[EMA(), metrics])
    evaluator = Evaluator(DigitsExtractor(), num_samples=40)
    evaluator.add_real(data.dataset.images)
    expected = evaluator.measure(to_uint8(module.sample(40, seed=1, weights="ema")))
    assert metrics.values == pytest.approx(expected, rel=1e-4)
    assert metrics.real_halves == pytest.approx(evaluator.real_halves, rel=1e-4)


def test_logs_at_the_iteration_that_was_measured(tiny_gan, random_images, fit, metrics, tmp_path):
    arguments = {"logger": CSVMetrics(str(tmp_path)), "log_every_n_steps": 1}
    trainer = fit(tiny_gan(), random_images(), max_steps=3, callbacks=[EMA(), metrics], **arguments)
    with (tmp_path / "metrics.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    measured = {step: float(row["metric/fid_digits"]) for step, row in rows.items() if row["metric/fid_digits"]}
    assert set(measured) == {0, 2, 3}
    assert measured[0] == metrics.first["metric/fid_digits"]
    assert measured[3] == metrics.values["metric/fid_digits"]
    assert trainer.global_step == 3


def test_the_time_of_a_measurement_does_not_count(tiny_gan, random_images, fit, metrics, monkeypatch):
    inside, measured = [], []

    @contextmanager
    def paused(trainer):
        inside.append(1)
        yield
        inside.pop()

    monkeypatch.setattr("lit_gans.callbacks.evaluation.paused", paused)
    original = DigitsExtractor.forward
    monkeypatch.setattr(DigitsExtractor, "forward", lambda *given: measured.append(len(inside)) or original(*given))
    fit(tiny_gan(), random_images(), max_steps=2, callbacks=[metrics])
    assert measured
    assert set(measured) == {1}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_measures_its_shard_of_the_generated_images(tiny_gan, random_images, fit, metrics, monkeypatch, rank):
    seen = []
    module, data = tiny_gan(), random_images()
    trainer = fit(module, data, max_steps=1)
    monkeypatch.setattr(Evaluator, "measure", lambda self, batches, labels: seen.extend(batches) or {})
    monkeypatch.setattr(type(trainer), "world_size", 2)
    monkeypatch.setattr(type(trainer), "global_rank", rank)
    metrics._measure(trainer, module)
    expected = to_uint8(module.sample(40, seed=1, batch_size=20)).split(20)
    assert torch.equal(torch.cat(seen), expected[rank])


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_lightning_s_own_checkpoint_and_progress_bar_see_the_values(tiny_gan, random_images, fit, metrics, tmp_path):
    shown = []

    class Bar(TQDMProgressBar):
        def get_metrics(self, trainer, model):
            shown.append(super().get_metrics(trainer, model).get("metric/fid_digits"))
            return super().get_metrics(trainer, model)

    checkpoint = ModelCheckpoint(
        str(tmp_path / "own"), "{step}", monitor="metric/fid_digits", every_n_train_steps=2, save_top_k=-1
    )
    arguments = {"enable_checkpointing": True, "enable_progress_bar": True, "log_every_n_steps": 1}
    trainer = fit(
        tiny_gan(),
        random_images(),
        4,
        callbacks=[metrics, checkpoint, Bar()],
        logger=CSVLogger(str(tmp_path)),
        **arguments,
    )
    assert metrics.measured_at == 4
    assert float(checkpoint.current_score) == pytest.approx(metrics.values["metric/fid_digits"])
    assert float(checkpoint.best_model_score) == pytest.approx(metrics.best["metric/fid_digits"][0])
    assert len(checkpoint.best_k_models) == 2
    assert trainer.logged_metrics["metric/fid_digits"].item() == pytest.approx(metrics.values["metric/fid_digits"])
    assert trainer.progress_bar_metrics["metric/fid_digits"] == metrics.values["metric/fid_digits"]
    assert metrics.first["metric/fid_digits"] in shown
    assert "metric/is_digits" not in trainer.progress_bar_metrics, "the headline alone"


def test_values_carry_their_protocol_in_the_folder_and_in_checkpoints(tiny_gan, random_images, fit, metrics, tmp_path):
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[EMA(), metrics])
    protocol = json.loads((tmp_path / "protocol.json").read_text())["metric/fid_digits"]
    assert protocol == metrics.protocol
    data_sha256, _, shape = fingerprint([random_images().dataset.images])
    assert (protocol["data_sha256"], protocol["image_size"]) == (data_sha256, shape[1:])
    assert (protocol["num_real"], protocol["num_fake"], protocol["weights"]) == (48, 40, "ema")
    assert protocol["extractor_sha256"] == DigitsExtractor().sha256
    assert {step for _, step in metrics.best.values()} == {1}, "untrained networks have no best.ckpt"
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    state = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"]["GenerativeMetrics"]
    assert state["protocol"] == protocol
    again = GenerativeMetrics(DigitsExtractor())
    again.load_state_dict(state)
    assert (again.protocol, again.best) == (protocol, metrics.best)
    assert not any("classifier" in name for name in torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"])


def test_every_score_has_its_keys_and_steers_the_best_checkpoint(tiny_gan, random_images, fit, tmp_path):
    scores = {
        "inception_score": InceptionScore(),
        "kid": KernelInceptionDistance(subsets=3, subset_size=20),
        "mifid": MemorizationInformedFrechetInceptionDistance(),
        "prdc": PrecisionRecallDensityCoverage(),
    }
    metrics = GenerativeMetrics(DigitsExtractor(), 1, 40, 16, scores=scores)
    checkpoint = Checkpoint(monitor="metric/coverage_digits", mode="max")
    fit(tiny_gan(), random_images(), max_steps=2, callbacks=[metrics, checkpoint], enable_checkpointing=True)
    names = ("is", "is_spread", "kid", "kid_spread", "mifid", "precision", "recall", "density", "coverage")
    assert tuple(metrics.values) == tuple(f"metric/{name}_digits" for name in names)
    assert checkpoint.best_value == pytest.approx(metrics.best["metric/coverage_digits"][0])
    assert "coverage_digits" in "\n".join(metrics.summary())


def test_the_summary_has_every_value_once():
    scores = {"fid": FrechetInceptionDistance(), "mifid": MemorizationInformedFrechetInceptionDistance()}
    metrics = GenerativeMetrics(DigitsExtractor(), scores=scores)
    metrics.values = {"metric/fid_digits": 2.0, "metric/mifid_digits": 3.0}
    metrics.first = {"metric/fid_digits": 4.0}
    text = "\n".join(metrics.summary())
    assert text.count("mifid_digits 3, on 2500 samples") == 1, "its name ends with that of the FID"
    assert text.startswith("fid_digits  2 of the untrained networks, lower is better\n")
    assert "nan" not in text, "the real halves were not measured in this process"
    metrics.real_halves = 0.0
    metrics.measured_at = 7
    first, halves, *_ = metrics.summary()
    assert first == "fid_digits  2 at iteration 7, lower is better; untrained: 4, 2.0 times as high"
    assert halves.endswith(" for comparison: 0.00 between two halves of the real images"), "no ratio to equal images"


def test_best_is_the_smallest_or_largest_and_when(metrics):
    metrics.directions = {"metric/a": "min", "metric/b": "max", "metric/c": None}
    for step, value in enumerate((2.0, 1.0, 3.0, 1.0, 1.5)):
        metrics.values, metrics.measured_at = {"metric/a": value, "metric/b": value, "metric/c": value}, step
        metrics._keep_best()
    metrics.first = {"metric/a": 1.5, "metric/b": 2.0}
    assert metrics.best == {"metric/a": (1.0, 1), "metric/b": (3.0, 2)}
    assert metrics.best_lines() == [f"{'':11} best: a 1 at iteration 1, b 3 at iteration 2"]
    metrics.first = {"metric/a": 0.5, "metric/b": 3.5}
    assert metrics.best_lines() == [], "the untrained networks were better"


def test_a_second_training_reads_the_statistics_of_the_first(tiny_gan, random_images, fit, monkeypatch, tmp_path):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    seen, original = [], DigitsExtractor.forward
    monkeypatch.setattr(DigitsExtractor, "forward", lambda self, x: seen.append(len(x)) or original(self, x))
    found = []
    for cache in (True, True, False):
        metrics = GenerativeMetrics(DigitsExtractor(), 9, 40, 40, cache=cache)
        fit(tiny_gan(), random_images(), max_steps=1, callbacks=[metrics])
        found.append((sum(seen), metrics.values))
        seen.clear()
    assert [count for count, _ in found] == [48 + 80, 80, 48 + 80]
    assert found[0][1] == found[1][1] == found[2][1]
