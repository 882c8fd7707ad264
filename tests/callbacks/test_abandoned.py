"""A signal ends a measurement within one of its batches, on every rank; the resumed training makes it."""

import csv
import os
import signal
import time

import pytest
import torch

from lit_gans.callbacks import GenerativeMetrics, PairedMetrics, RunCheckpoint, StopOnPlateau
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.signals import StopSignals
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.scores.fid import FrechetInceptionDistance
from lit_gans.strategies.ddp import NetworkDDP
from tests.strategies import ranks
from tests.tiny import fit, random_images, tiny_gan

BATCHES = 12  # of the real images, and of the generated images of each measurement, on one process
KEY = "metric/fid_digits"


class Counted(DigitsExtractor):
    """Counts its batches and does something in one of them."""

    def __init__(self, number=None, act=lambda: signal.raise_signal(signal.SIGTERM)):
        super().__init__()
        self.batches, self.number, self.act = 0, number, act

    @property
    def sha256(self):
        """The count and the act change no features."""
        return DigitsExtractor().sha256

    def forward(self, images):
        self.batches += 1
        if self.batches == self.number:
            self.act()
        return super().forward(images)


def fid(extractor):
    """Measures in every second iteration."""
    sizes = {"num_samples": 4 * BATCHES, "batch_size": 4}
    return GenerativeMetrics(extractor, 2, **sizes, scores={"fid": FrechetInceptionDistance()}, cache=False)


def measured(folder):
    """The iterations with a value of the FID."""
    with (folder / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file) if row.get(KEY)]


def saved(path):
    return torch.load(path, weights_only=True)


@pytest.fixture
def train(tiny_gan, random_images, fit, tmp_path):
    """Trains for four iterations, or goes on to them, and returns the trainer and the number of extracted batches."""

    def run(folder, signal_in=None, mode="min", resume=None):
        extractor, where = Counted(signal_in), tmp_path / folder
        trainer = fit(
            tiny_gan(),
            random_images(),
            4,
            resume,
            callbacks=[fid(extractor), StopOnPlateau(), RunCheckpoint(every_n_train_steps=10, mode=mode)],
            enable_checkpointing=True,
            default_root_dir=where,
            logger=CSVMetrics(str(where)),
            log_every_n_steps=1,
        )
        return trainer, extractor.batches

    return run


@pytest.mark.parametrize(
    ("signal_in", "stops_at", "rows"),
    [(5, 1, []), (BATCHES + 5, 1, []), (2 * BATCHES + 5, 2, [0]), (3 * BATCHES, 2, [0])],
    ids=["the real images", "iteration 0", "iteration 2", "its last batch"],
)
def test_no_batch_follows_and_no_row_is_written(train, tmp_path, capfd, signal_in, stops_at, rows):
    trainer, batches = train("run", signal_in)
    assert batches == signal_in
    assert trainer.global_step == saved(tmp_path / "run/checkpoints/last.ckpt")["global_step"] == stops_at
    assert measured(tmp_path / "run") == rows
    assert trainer.checkpoint_callback.received_signal == signal.SIGTERM
    assert "SIGTERM: the training stops after this iteration, with a checkpoint" in capfd.readouterr().err


@pytest.mark.runs
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_resumed_training_measures_what_was_abandoned(train, tmp_path, mode):
    whole, _ = train("whole", mode=mode)
    train("stopped", 2 * BATCHES + 5, mode)
    last = tmp_path / "stopped/checkpoints/last.ckpt"
    resumed, batches = train("stopped", mode=mode, resume=last)
    assert batches == 3 * BATCHES, "the real images, and the generated ones of iterations 2 and 4"
    files = [tmp_path / folder / "metrics.csv" for folder in ("whole", "stopped")]
    assert files[0].read_text() == files[1].read_text()
    for name in ("best", "last"):
        whole_one, resumed_one = (
            saved(tmp_path / f"{folder}/checkpoints/{name}.ckpt") for folder in ("whole", "stopped")
        )
        assert whole_one["global_step"] == resumed_one["global_step"]
        for part in ("state_dict", "optimizer_states"):
            torch.testing.assert_close(resumed_one[part], whole_one[part], rtol=0, atol=0)
    assert resumed.checkpoint_callback.state_dict() == whole.checkpoint_callback.state_dict()


@pytest.mark.runs
def test_the_measurement_at_the_last_iteration_is_completed(train, tmp_path):
    train("whole")
    trainer, batches = train("signaled", 3 * BATCHES + 5)
    assert batches == 4 * BATCHES, "the real images, and the generated ones of iterations 0, 2 and 4"
    assert trainer.checkpoint_callback.received_signal == signal.SIGTERM
    files = [tmp_path / folder / "metrics.csv" for folder in ("whole", "signaled")]
    assert files[0].read_text() == files[1].read_text()
    states = [saved(tmp_path / folder / "checkpoints/last.ckpt")["callbacks"] for folder in ("whole", "signaled")]
    assert states[0]["RunCheckpoint"] == states[1]["RunCheckpoint"]


def test_a_training_that_is_resumed_after_its_measurement_does_not_repeat_it(train, tmp_path):
    train("run", mode="max")
    _, batches = train("run", resume=tmp_path / "run/checkpoints/last.ckpt")
    assert batches == 0


def test_pairs_are_abandoned_too(tiny_gan, random_images, fit):
    module, metrics, calls = tiny_gan("pix2pix"), PairedMetrics(2, num_samples=12, batch_size=4), []
    decode = module.decode_in

    def decoded(*arguments, **settings):
        calls.append(module.trainer.global_step)
        if calls == [0, 0, 0, 2]:
            signal.raise_signal(signal.SIGINT)
        return decode(*arguments, **settings)

    module.decode_in = decoded
    fit(module, random_images(), 4, callbacks=[metrics, RunCheckpoint()], enable_checkpointing=True)
    assert calls == [0, 0, 0, 2]
    assert metrics.measured_at == 0


def on_a_rank(where, stage):
    """Measures on two ranks, of which the second alone receives a signal; the first is at most in the batch after that,
    and goes on once the second has seen the signal. Returns what each says.
    """
    rank, seen = int(os.environ["RANK"]), where / "seen"

    def wait():
        while not seen.exists():
            time.sleep(0.01)

    extractor = Counted(3 + stage * BATCHES // 2, wait) if rank == 0 else Counted(2 + stage * BATCHES // 2)
    signals = StopSignals.came

    def came(self):
        found = signals(self)
        if found and rank == 1:
            seen.touch()
        return found

    StopSignals.came = came
    trainer = fit(
        tiny_gan(),
        random_images(batch_size=4),
        4,
        devices=2,
        strategy=NetworkDDP(timeout=60),
        default_root_dir=where,
        logger=CSVMetrics(str(where)),
        log_every_n_steps=1,
        callbacks=[fid(extractor), RunCheckpoint()],
        enable_checkpointing=True,
    )
    return trainer.global_step, trainer.checkpoint_callback.received_signal, extractor.batches


@pytest.mark.faults
@pytest.mark.parametrize(("stage", "stops_at"), [(0, 1), (1, 1), (2, 2)], ids=["the real images", "0", "2"])
def test_a_signal_to_one_of_two_ranks_ends_the_measurement_on_both(tmp_path, stage, stops_at):
    """Each rank has half of the batches of a stage."""
    first, second = ranks.run("tests.callbacks.test_abandoned.on_a_rank", tmp_path, where=tmp_path, stage=stage)
    before = stage * BATCHES // 2
    assert first[:2] == (stops_at, signal.SIGTERM)
    assert first[2] <= before + 3
    assert second == (stops_at, signal.SIGTERM, before + 2)
    assert measured(tmp_path) == ([0] if stops_at == 2 else [])
    assert saved(tmp_path / "checkpoints/last.ckpt")["global_step"] == stops_at
