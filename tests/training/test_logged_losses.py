"""Losses are logged where something reads them, with the same values as if they were logged in every iteration."""

import csv

import pytest
from lightning.pytorch import Callback

from lit_gans.callbacks import Checkpoint, EarlyStopping, Throughput, Watch
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.training.callback import GenerativeCallback, reads_losses


class Reader(Callback):
    """A callback of another project, which reads the losses of every iteration."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append({name: value.item() for name, value in trainer.callback_metrics.items() if "loss/" in name})


class Own(GenerativeCallback):
    """Records the module's losses and may ask for a stop."""

    reads_losses = False

    def __init__(self, stop_at=None):
        self.stop_at, self.seen = stop_at, []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.seen.append({f"loss/{name}": loss.item() for name, loss in pl_module.losses.items()})
        trainer.should_stop = trainer.global_step == self.stop_at


@pytest.fixture
def logged(tiny_gan, random_images, fit, tmp_path, monkeypatch):
    """Trains and returns the rows of the CSV, the number of calls of `log_dict`, and the trainer."""

    def run(folder, callbacks, max_steps=7, every=3):
        module, calls = tiny_gan("dcgan"), []
        original = module.log_dict
        monkeypatch.setattr(module, "log_dict", lambda *a, **k: calls.append(1) or original(*a, **k))
        logger = CSVMetrics(str(tmp_path / folder))
        settings = {"max_steps": max_steps, "logger": logger, "log_every_n_steps": every}
        trainer = fit(module, random_images(), callbacks=callbacks, **settings)
        with (tmp_path / folder / "metrics.csv").open() as file:
            return list(csv.DictReader(file)), len(calls), trainer

    return run


def test_rows_and_losses_are_those_of_logging_in_every_iteration(logged):
    reader, own = Reader(), Own()
    every_time, all_calls, _ = logged("read", [reader])
    rows, calls, trainer = logged("unread", [own])
    assert rows == every_time
    assert [int(row["step"]) for row in rows] == [2, 5]
    assert (all_calls, calls) == (7, 3), "two rows, and the last iteration"
    assert own.seen == reader.seen
    assert {name: float(trainer.callback_metrics[name]) for name in own.seen[-1]} == own.seen[-1]


def test_a_row_that_a_stop_adds_has_the_losses_of_its_iteration(logged):
    rows, _, _ = logged("stopped", [own := Own(stop_at=5)])
    assert [int(row["step"]) for row in rows] == [2, 4]
    assert {name: float(rows[-1][name]) for name in own.seen[4]} == own.seen[4]


def test_callbacks_that_may_read_losses():
    assert reads_losses(Reader())
    assert not reads_losses(Callback())
    assert reads_losses(GenerativeCallback()), "unless it says otherwise"
    assert not any(reads_losses(each) for each in (Throughput(), Watch(), Checkpoint(), EarlyStopping()))
    assert reads_losses(Checkpoint(monitor="loss/generator"))
    assert not reads_losses(Checkpoint(monitor="metric/fid_digits"))
    assert reads_losses(EarlyStopping(patience=2, monitor="loss/generator"))
