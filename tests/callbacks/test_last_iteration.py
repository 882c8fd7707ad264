"""Whatever ends a training: its last iteration is measured, compared with the best one, and saved, once."""

import csv
import signal
from datetime import timedelta

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback, Timer
from torch.utils.data import DataLoader, IterableDataset

from lit_gans.callbacks import EMA, RunCheckpoint, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics

from .test_early_stopping import Given

LAST = 5  # iteration at which every training here ends


class Measured(Given):
    """Measures every second iteration, from 9 on downwards: the last value is the best."""

    def __init__(self):
        super().__init__(iter(range(9, 0, -1)), every_n_steps=2)
        self.at = []

    def measure(self, trainer, module):
        self.at.append(trainer.global_step)
        return {name: float(value) for name, value in super().measure(trainer, module).items()}


class Endless(IterableDataset):
    """Rows of a list, without a length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


class StopsAfterTheEpoch(Callback):
    """Stops as Lightning's `EarlyStopping` does, at the end of an epoch."""

    def on_train_epoch_end(self, trainer, *_):
        trainer.should_stop = True


class NoTimeLeft(Timer):
    """A `Timer` whose time is up after the last iteration."""

    def __init__(self):
        super().__init__(timedelta(hours=1))

    def on_train_batch_end(self, trainer, *rest):
        self._offset = 3600.0 * (trainer.global_step == LAST)
        super().on_train_batch_end(trainer, *rest)


def stop(trainer, *_):
    trainer.should_stop = trainer.global_step >= 3


ENDS = {
    "limit_train_batches": {"max_steps": -1, "max_epochs": 1, "limit_train_batches": LAST},
    "max_steps": {"max_steps": LAST},
    "max_epochs": {"max_steps": -1, "max_epochs": 1, "num_images": 8 * LAST},
    "max_epochs, no length": {"max_steps": -1, "max_epochs": 1},
    "max_time": {"max_steps": -1, "callbacks": [NoTimeLeft]},
    "after the epoch": {"max_steps": -1, "num_images": 8 * LAST, "callbacks": [StopsAfterTheEpoch]},
    "min_steps": {
        "max_steps": -1,
        "min_steps": LAST,
        "num_images": 8 * LAST,
        "callbacks": [lambda: LambdaCallback(on_train_batch_end=stop)],
    },
}


@pytest.fixture
def ended(tiny_gan, random_images, fit, tmp_path):
    """Trains until an end; returns the trainer, what was measured, and the folder."""

    def run(end, *others):
        settings = {**ENDS[end]}
        data = random_images()
        data.num_images = settings.pop("num_images", data.num_images)
        if end == "max_epochs, no length":
            data.setup("fit")
            rows = [{"image": image, "input": image} for image in data.dataset.images[: 8 * LAST]]
            data = DataLoader(Endless(rows), batch_size=8)
        measured, where = Measured(), tmp_path / end
        late = [make() for make in settings.pop("callbacks", ())]
        own = [EMA(), Samples(every_n_steps=2, num=4), measured, *others]
        callbacks = [*own, *late, RunCheckpoint(every_n_train_steps=2, monitor="metric/given")]
        logger = CSVMetrics(str(where))
        arguments = {"callbacks": callbacks, "enable_checkpointing": True, "logger": logger, "log_every_n_steps": 1}
        trainer = fit(tiny_gan(), data, settings.pop("max_steps"), default_root_dir=where, **settings, **arguments)
        return trainer, measured, where

    return run


@pytest.mark.parametrize("end", ENDS)
def test_the_last_iteration_is_measured_compared_and_saved_once(ended, end):
    trainer, measured, folder = ended(end)
    assert trainer.global_step == LAST
    assert measured.at == [0, 2, 4, LAST]
    assert measured.measured_at == LAST
    assert trainer.checkpoint_callback.state_dict() == {
        "metric": "metric/given",
        "protocol": measured.protocol,
        "top": {LAST: 6.0},
        "untrained_value": 9.0,
        "recent": [],
    }
    for name in ("best", "last"):
        content = torch.load(folder / f"checkpoints/{name}.ckpt", weights_only=True)
        assert content["global_step"] == LAST
        assert content["callbacks"]["RunCheckpoint(metric/given)"] == trainer.checkpoint_callback.state_dict()
        assert content["callbacks"]["Measured"]["measured_at"] == LAST
    with (folder / "metrics.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    assert [*rows] == list(range(LAST + 1)), "one row for each iteration"
    assert {step for step, row in rows.items() if row["metric/given"]} == {0, 2, 4, LAST}
    assert all(rows[step]["loss/generator"] for step in range(LAST)), "Lightning counts rows of losses from 0"
    assert (folder / f"samples/{LAST:06d}.png").is_file()
    assert (folder / "samples/training.gif").is_file()


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # the resumed training has few callbacks
@pytest.mark.parametrize("end", ["max_epochs", "max_time", "after the epoch"])
def test_the_last_checkpoint_is_that_of_a_training_by_steps_and_resumes_bitwise(
    ended, tiny_gan, random_images, fit, end
):
    paths = [ended(name)[2] / "checkpoints/last.ckpt" for name in ("max_steps", end)]
    contents = [torch.load(path, weights_only=True) for path in paths]
    assert contents[1]["callbacks"]["Measured"] == contents[0]["callbacks"]["Measured"]
    states = []
    for resume in (None, paths[1]):
        module, data = tiny_gan(), random_images()
        data.num_images = ENDS[end].get("num_images", data.num_images)
        fit(module, data, 9, resume, callbacks=[EMA()])
        states.append((module.state_dict(), module.averaged_generator.state_dict()))
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_a_training_that_a_signal_stops_is_not_measured_at_its_last_iteration(ended):
    def terminate(trainer, *_):
        if trainer.global_step == 3:
            signal.raise_signal(signal.SIGTERM)

    trainer, measured, folder = ended("max_epochs", LambdaCallback(on_train_batch_end=terminate))
    assert (trainer.global_step, measured.at) == (3, [0, 2])
    assert trainer.checkpoint_callback.stopped_by_signal
    assert torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 3


@pytest.mark.parametrize("end", ["max_steps", "max_epochs"])
def test_a_signal_in_the_last_iteration_leaves_its_measurement_whole(ended, end):
    def terminate(trainer, *_):
        if trainer.global_step == LAST:
            signal.raise_signal(signal.SIGTERM)

    trainer, measured, _ = ended(end, LambdaCallback(on_train_batch_end=terminate))
    assert measured.at == [0, 2, 4, LAST]
    assert trainer.checkpoint_callback.received_signal == signal.SIGTERM
    assert not trainer.checkpoint_callback.stopped_by_signal
