"""Logged losses are those of their iteration, for callbacks, loggers and the row that a stop adds."""

import csv

import pytest
from lightning.pytorch import Callback

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.training.callback import GenerativeCallback


class Reader(Callback):
    """A callback of another project, which reads the losses of every iteration."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append({name: value.item() for name, value in trainer.callback_metrics.items() if "loss/" in name})


class Own(GenerativeCallback):
    """Records the module's losses and may ask for a stop."""

    def __init__(self, stop_at=None):
        self.stop_at, self.seen = stop_at, []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.seen.append({f"loss/{name}": loss.item() for name, loss in pl_module.losses.items()})
        trainer.should_stop = trainer.global_step == self.stop_at


@pytest.fixture
def logged(tiny_gan, random_images, fit, tmp_path):
    """Trains and returns the rows of the CSV and the trainer."""

    def run(folder, callbacks, max_steps=7, every=3):
        logger = CSVMetrics(str(tmp_path / folder))
        settings = {"max_steps": max_steps, "logger": logger, "log_every_n_steps": every}
        trainer = fit(tiny_gan("dcgan"), random_images(), callbacks=callbacks, **settings)
        with (tmp_path / folder / "metrics.csv").open() as file:
            return list(csv.DictReader(file)), trainer

    return run


def test_callbacks_and_rows_have_the_losses_of_their_iteration(logged):
    rows, trainer = logged("rows", [reader := Reader(), own := Own()])
    assert len(own.seen) == 7
    assert own.seen == reader.seen
    assert [int(row["step"]) for row in rows] == [2, 5]
    for row in rows:
        assert {name: float(row[name]) for name in own.seen[0]} == own.seen[int(row["step"])]
    assert {name: float(trainer.callback_metrics[name]) for name in own.seen[-1]} == own.seen[-1]


def test_a_row_that_a_stop_adds_has_the_losses_of_its_iteration(logged):
    rows, _ = logged("stopped", [own := Own(stop_at=5)])
    assert [int(row["step"]) for row in rows] == [2, 4]
    assert {name: float(rows[-1][name]) for name in own.seen[4]} == own.seen[4]
