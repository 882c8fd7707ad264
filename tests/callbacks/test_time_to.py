"""Seconds until a metric passes a value, over a resume too."""

from unittest.mock import create_autospec

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks import Throughput
from lit_gans.callbacks.time_to import TimeTo
from lit_gans.cli.report import report, run_of
from lit_gans.training.callback import GenerativeCallback


class Measured(GenerativeCallback):
    """Sets the values of one FID and one Inception Score at chosen iterations, as a measurement would."""

    directions = {"metric/fid": "min", "metric/is": "max", "metric/spread": None}

    def __init__(self, values):
        self.values = values

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step in self.values:
            fid, score = self.values[trainer.global_step]
            for name, value in {"fid": fid, "is": score, "spread": 0.0}.items():
                trainer.callback_metrics[f"metric/{name}"] = torch.tensor(float(value))
            for callback in trainer.callbacks:
                if isinstance(callback, GenerativeCallback):
                    callback.on_measure_end(trainer)


def trainer_at(step, values):
    metrics = {f"metric/{name}": torch.tensor(value) for name, value in values.items()}
    trainer = create_autospec(Trainer, instance=True)
    trainer.global_step, trainer.callback_metrics, trainer.callbacks = step, metrics, [Measured({})]
    return trainer


def test_the_first_time_is_kept_in_the_direction_of_each_metric():
    times = TimeTo({"fid": 10, "metric/is": 5.0, "other": 1})
    for seconds, fid, score in ((1, 30.0, 1.0), (2, 10.0, 4.9), (3, 20.0, 5.0), (4, 5.0, 9.0)):
        times.observe(trainer_at(seconds, {"fid": fid, "is": score, "spread": 0.0}), float(seconds))
    assert times.reached == {"fid": 2.0, "is": 3.0}
    assert times.lines()[0].endswith("fid 10: after 2.0 s of training")
    assert times.lines()[2].endswith("other 1: not reached")
    columns = times.columns()
    assert (columns["s to fid 10"], columns["s to is 5"]) == (2.0, 3.0)
    assert columns["s to other 1"] != columns["s to other 1"]


def test_a_resumed_run_goes_on_counting():
    first, second = Throughput({"fid": 10}), Throughput({"fid": 10})
    first.time_to.observe(trainer_at(1, {"fid": 9.0}), 4.0)
    first._all_seconds = 6.0
    second.load_state_dict(first.state_dict())
    assert second.seconds == 6.0
    second.time_to.observe(trainer_at(2, {"fid": 3.0}), 9.0)
    assert second.time_to.reached == {"fid": 4.0}


def test_the_report_of_a_run_and_of_a_sweep_has_the_times(tiny_gan, random_images, fit, capsys):
    throughput = Throughput({"fid": 10})
    callbacks = [throughput, Measured({1: (30, 1), 2: (7, 2), 3: (8, 3)})]
    trainer = fit(tiny_gan(), random_images(), max_steps=3, callbacks=callbacks)
    report(trainer)
    seconds = throughput.time_to.reached["fid"]
    assert 0 < seconds <= throughput.seconds
    assert f"fid 10: after {seconds:.1f} s of training" in capsys.readouterr().out
    assert run_of(trainer, [], 1.0).values["s to fid 10"] == seconds
