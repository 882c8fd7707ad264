"""Scores during training: what is measured, when and of which weights; what is logged, left out and refused."""

import csv
import json

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from lit_gans.callbacks import EMA, GenerativeMetrics, ModeMetrics, PairedMetrics, RunCheckpoint, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.data.class_frequencies import in_proportion
from lit_gans.data.digests import fingerprint
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.points import Ring
from lit_gans.metrics import (
    FrechetInceptionDistance,
    KernelInceptionDistance,
    MemorizationInformedFrechetInceptionDistance,
)
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.tiny import quiet_trainer

from .test_early_stopping import Given

KEYS = ("metric/fid_digits", "metric/is_digits", "metric/is_spread_digits", "metric/classes_covered")


@pytest.fixture
def metrics():
    return GenerativeMetrics(DigitsExtractor(), every_n_steps=2, num_samples=40, batch_size=16)


@pytest.mark.parametrize("kind", ["images", "points", "pairs"])
def test_training_is_bitwise_the_same_with_and_without_measurements(tiny_gan, random_images, fit, metrics, kind):
    name = {"images": "dcgan", "points": "gan", "pairs": "pix2pix"}[kind]
    sizes = {"image_size": 1, "channels": 2} if kind == "points" else {}
    callback = {
        "images": metrics,
        "points": ModeMetrics(2, num_samples=50, batch_size=20),
        "pairs": PairedMetrics(2, num_samples=10),
    }[kind]
    trained = []
    for callbacks in ([EMA(), callback, Samples(every_n_steps=1, num=4)], []):
        module = tiny_gan(name, **sizes)
        fit(module, Ring(num_points=64, batch_size=16) if sizes else random_images(), 3, callbacks=callbacks)
        trained.append(module.state_dict())
    assert callback.measured_at == 3
    torch.testing.assert_close(*trained, rtol=0, atol=0)


def test_measures_and_logs_at_zero_in_between_and_at_the_end(tiny_gan, random_images, fit, metrics, tmp_path):
    arguments = {"logger": CSVMetrics(str(tmp_path)), "log_every_n_steps": 1}
    trainer = fit(tiny_gan(), random_images(), max_steps=5, callbacks=[EMA(), metrics], **arguments)
    with (tmp_path / "metrics.csv").open() as file:
        rows = {int(row["step"]): float(row[KEYS[0]]) for row in csv.DictReader(file) if row[KEYS[0]]}
    assert [*rows] == [0, 2, 4, 5]
    assert (rows[0], rows[5]) == (metrics.first[KEYS[0]], metrics.values[KEYS[0]])
    assert tuple(metrics.values) == KEYS, "none of classes, which this generator does not have"
    assert trainer.callback_metrics[KEYS[0]].item() == pytest.approx(metrics.values[KEYS[0]])
    assert metrics.first != metrics.values
    assert "at iteration 5" in "\n".join(metrics.summary())


def test_values_are_those_of_the_sampling_generator_against_all_real_images(tiny_gan, random_images, fit, metrics):
    module, data = tiny_gan(), random_images()
    fit(module, data, max_steps=2, callbacks=[EMA(), metrics])
    evaluator = Evaluator(DigitsExtractor(), num_samples=40)
    evaluator.add_real(data.dataset.images)
    expected = evaluator.measure(to_uint8(module.sample(40, seed=1, weights="ema")))
    assert metrics.values == pytest.approx(expected, rel=1e-4)
    assert metrics.evaluator.real_halves == pytest.approx(evaluator.real_halves, rel=1e-4)
    assert evaluator.measure(to_uint8(module.sample(40, seed=1, weights="raw"))) != pytest.approx(expected, rel=1e-4)


def test_statistics_of_the_real_images_are_stored_if_asked_for(
    tiny_gan, random_images, fit, metrics, tmp_path, monkeypatch
):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path))
    for metrics.cache in (False, True):
        fit(tiny_gan(), random_images(), max_steps=1, callbacks=[metrics])
        assert (tmp_path / "references").exists() == metrics.cache


def test_a_network_that_the_module_trains_against_is_no_extractor(tiny_gan, random_images, fit, metrics):
    module = tiny_gan()
    module.trains_against = ("efficientnet_lite0",)
    fit(module, random_images(), max_steps=1, callbacks=[metrics])
    assert metrics.protocol["trained_against"] == ["efficientnet_lite0"]
    module.trains_against = ("efficientnet_lite0", "digits")
    with pytest.raises(RefusedInput, match="metrics=digits uses a feature extractor that a loss of DCGAN also uses"):
        fit(module, random_images(), max_steps=1, callbacks=[metrics])


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_lightning_s_own_checkpoint_and_progress_bar_see_the_values(tiny_gan, random_images, fit, metrics, tmp_path):
    own = ModelCheckpoint(str(tmp_path / "own"), "{step}", monitor=KEYS[0], every_n_train_steps=2, save_top_k=-1)
    arguments = {"enable_checkpointing": True, "log_every_n_steps": 1, "logger": CSVLogger(str(tmp_path))}
    trainer = fit(tiny_gan(), random_images(), 4, callbacks=[metrics, own], **arguments)
    assert float(own.current_score) == pytest.approx(metrics.values[KEYS[0]])
    assert float(own.best_model_score) == pytest.approx(metrics.best[KEYS[0]][0])
    assert len(own.best_k_models) == 2
    assert trainer.logged_metrics[KEYS[0]].item() == pytest.approx(metrics.values[KEYS[0]])
    assert trainer.progress_bar_metrics[KEYS[0]] == metrics.values[KEYS[0]]
    assert KEYS[1] not in trainer.progress_bar_metrics, "the headline alone"


def test_values_carry_their_protocol_in_the_folder_and_in_checkpoints(tiny_gan, random_images, fit, metrics, tmp_path):
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[EMA(), metrics])
    protocol = json.loads((tmp_path / "protocol.json").read_text())[KEYS[0]]
    assert protocol == metrics.protocol
    data_sha256, _, shape = fingerprint([random_images().dataset.images])
    assert (protocol["data_sha256"], protocol["image_size"]) == (data_sha256, shape[1:])
    assert (protocol["num_real"], protocol["num_fake"], protocol["weights"]) == (48, 40, "ema")
    assert protocol["extractor_sha256"] == DigitsExtractor().sha256
    assert protocol["real_halves"] == metrics.evaluator.real_halves > 0, "for the report of the run"
    assert {step for _, step in metrics.best.values()} == {1}, "untrained networks have no best.ckpt"
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)
    again = GenerativeMetrics(DigitsExtractor())
    again.load_state_dict(content["callbacks"][metrics.state_key])
    assert (again.protocol, again.best) == (protocol, metrics.best)
    assert not any("classifier" in name for name in content["state_dict"])


def test_a_new_run_keeps_the_protocols_of_an_earlier_run_apart(tiny_gan, random_images, fit, metrics, tmp_path):
    (tmp_path / "protocol.json").write_text('{"metric/old": {}}')
    fit(tiny_gan(), random_images(), max_steps=1, callbacks=[metrics, Given([1.0] * 9)])
    assert {*json.loads((tmp_path / "protocol.json").read_text())} == {KEYS[0], "metric/given"}
    assert (tmp_path / "protocol-1.json").read_text() == '{"metric/old": {}}'


def test_a_damaged_protocol_does_not_end_a_training(tiny_gan, random_images, fit, metrics, tmp_path, caplog):
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[EMA(), metrics])
    (tmp_path / "protocol.json").write_text("{")
    metrics._write_protocol(trainer)
    assert "protocol.json is damaged. It is replaced by a file" in caplog.text
    assert {*json.loads((tmp_path / "protocol.json").read_text())} == {KEYS[0]}


def test_the_summary_has_every_value_once(tiny_gan, random_images, fit):
    scores = {"fid": FrechetInceptionDistance(), "mifid": MemorizationInformedFrechetInceptionDistance()}
    metrics = GenerativeMetrics(DigitsExtractor(), scores=scores)
    metrics.setup(fit(tiny_gan(), random_images(), 0), tiny_gan(), "fit")
    metrics.values, metrics.first = {KEYS[0]: 2.0, "metric/mifid_digits": 3.0}, {KEYS[0]: 4.0}
    assert len(metrics.summary()) == 2, "nothing of real halves that were not measured"
    metrics.evaluator.real_halves, metrics.measured_at = 0.0, 7
    assert [line.strip() for line in metrics.summary()] == [
        "fid_digits  2 at iteration 7, lower is better; untrained: 4, 2.0 times as high",
        "for comparison: 0.00 between two halves of the real images",
        "mifid_digits 3, on 2500 samples",
    ]


@pytest.mark.parametrize(("direction", "best"), [("min", (1.0, 2)), ("max", (3.0, 3))])
def test_best_is_the_smallest_or_largest_and_when(tiny_gan, random_images, fit, direction, best):
    given = Given((9.0 if direction == "max" else 0.0, 2.0, 1.0, 3.0, 1.0, 2.0), direction)
    fit(tiny_gan("gan"), random_images(), 5, callbacks=[given])
    assert given.best == {"metric/given": best}
    assert given.best_lines() == [], "the untrained networks were better"
    given.first = {"metric/given": 2.0}
    assert given.best_lines() == [f"{'':11} best: given {best[0]:.0f} at iteration {best[1]}"]


@pytest.mark.parametrize("batch_size", [16, 25])
def test_a_generator_with_classes_is_measured_by_those_that_it_is_asked_for(tiny_gan, random_images, fit, batch_size):
    module, asked = tiny_gan(num_classes=10), []
    generate = module.generate
    module.generate = lambda generator, batch: asked.extend(batch["label"].tolist()) or generate(generator, batch)
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=45, batch_size=batch_size)
    data, labels = random_images(), torch.arange(48).sqrt().long()  # classes 0 to 6, of which 6 is most frequent
    data.real_labels = lambda: labels
    trainer = fit(module, data, max_steps=1, callbacks=[metrics])
    assert "0 image in a class has no covariance" in metrics.left_out["intra_fid"]
    asked.clear()
    values, wanted = metrics.measure(trainer, module), in_proportion(labels, 45)
    assert asked == wanted.tolist(), "also where batches do not end with a class"
    assert asked.count(5) in (10, 11)
    assert metrics.protocol["classes"] == "as in the data"
    _, logits = DigitsExtractor()(to_uint8(module.decode(module.latents(45, seed=1), labels=wanted)))
    accuracy = (logits.argmax(1) == wanted).double().mean().item()
    assert values["metric/class_accuracy_digits"] == pytest.approx(accuracy)
    assert metrics.directions["metric/class_accuracy_digits"] == "max"


def test_a_score_that_so_few_images_do_not_allow_is_left_out_and_log_report_and_protocol_say_why(
    tiny_gan, random_images, fit, tmp_path, caplog
):
    scores = {"fid": FrechetInceptionDistance(), "kid": KernelInceptionDistance()}
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=60, scores=scores)
    fit(tiny_gan(), random_images(), 1, callbacks=[metrics])
    assert metrics.values.keys() == metrics.directions.keys() == {KEYS[0]}
    reason = "48 images are too few for subset_size=1000"
    written = json.loads((tmp_path / "protocol.json").read_text())[KEYS[0]]
    assert written["left_out"] == metrics.left_out
    assert set(written["scores"]) == {"FrechetInceptionDistance"}
    assert metrics.left_out["kid"].startswith(reason)
    assert sum(f"kid is left out: {reason}" in message for message in caplog.messages) == 1
    assert f"left out: kid ({reason}" in "\n".join(metrics.summary())
    steered = RunCheckpoint(monitor="metric/kid_digits")
    sentence = "nothing measures it; did you mean 'metric/.*'.* kid is left out: 48 images are too few"
    with pytest.raises(RefusedInput, match=sentence):
        fit(tiny_gan(), random_images(), 1, callbacks=[metrics, steered], enable_checkpointing=True)


@pytest.mark.parametrize(("direction", "best"), [("min", (2.0, 3)), ("max", (5.0, 2))])
def test_what_is_not_a_number_is_never_the_best_value(tiny_gan, random_images, fit, direction, best):
    given = Given([9.0, float("nan"), 5.0, 2.0], direction)
    fit(tiny_gan(), random_images(), 3, callbacks=[given])
    assert given.best == {"metric/given": best}


def test_values_of_an_earlier_training_are_gone_before_the_first_measurement(tiny_gan, random_images, fit):
    class Looks(Given):
        def measure(self, trainer, module):
            seen.append((trainer.global_step, dict(self.values), dict(self.best)))
            return super().measure(trainer, module)

    seen, given = [], Looks([9.0, 1.0, 8.0, 7.0])
    for _ in range(2):
        trainer = fit(tiny_gan(), random_images(), 1, callbacks=[given])
    assert [look for look in seen if look[0] == 0] == [(0, {}, {})] * 2
    assert given.best == {"metric/given": (7.0, 1)}
    assert trainer.callback_metrics["metric/given"] == 7.0


def test_a_trainer_with_metrics_predicts_without_images(tiny_gan, metrics):
    module = tiny_gan()
    trainer = quiet_trainer(callbacks=[EMA(), metrics])
    images = trainer.predict(module, DataLoader(torch.randn(4, module.latent_dim), batch_size=2))
    assert [len(batch) for batch in images] == [2, 2]
