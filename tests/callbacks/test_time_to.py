"""Seconds until a metric passes a value, over a resume too."""

from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from lit_gans.callbacks import Throughput
from lit_gans.cli.outcome import report, run_of
from lit_gans.common.errors import RefusedInput
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


def test_the_first_time_is_kept_in_the_direction_of_each_metric_over_a_resume():
    callback = Throughput({"fid": 10, "metric/is": 5.0, "spread": -1})
    for seconds, fid, score in ((1.0, 30.0, 1.0), (2.0, 10.0, 4.9), (3.0, 20.0, 5.0), (4.0, 5.0, 9.0)):
        callback._all_seconds = seconds
        callback.on_measure_end(trainer_at(seconds, {"fid": fid, "is": score, "spread": 0.0}))
    resumed = Throughput({"fid": 10, "is": 5.0, "spread": -1})
    resumed.load_state_dict(callback.state_dict())
    assert resumed.seconds == 4.0
    resumed.on_measure_end(trainer_at(5, {"fid": 1.0, "is": 10.0, "spread": 0.0}))
    for each in (callback, resumed):
        assert each.reached == {"fid": 2.0, "is": 3.0}
        first, _, last = each.reached_lines()
        assert first.endswith("fid 10: after 2.0 s of training")
        assert last.endswith("spread -1: not reached")
        columns = each.reached_columns()
        assert (columns["s to fid 10"], columns["s to is 5"]) == (2.0, 3.0)
        assert columns["s to spread -1"] != columns["s to spread -1"]


def test_a_metric_that_nothing_measures_is_refused(tiny_gan, random_images, fit):
    """Also beside callbacks and with a GAN of another project, where it was taken in silence."""
    module = tiny_gan()
    own = type("Own", (type(module),), {"__module__": "elsewhere"})
    module.__class__ = own
    with pytest.raises(RefusedInput, match=r"time_to\.fit: nothing measures it; did you mean 'metric/fid'"):
        fit(module, random_images(), max_steps=1, callbacks=[Throughput({"fit": 1}), Measured({}), Callback()])


def test_the_report_of_a_run_and_of_a_sweep_has_the_times(tiny_gan, random_images, fit, capsys):
    throughput = Throughput({"fid": 10})
    callbacks = [throughput, Measured({1: (30, 1), 2: (7, 2), 3: (8, 3)})]
    trainer = fit(tiny_gan(), random_images(), max_steps=3, callbacks=callbacks)
    report(trainer)
    seconds = throughput.reached["fid"]
    assert 0 < seconds <= throughput.seconds
    assert f"fid 10: after {seconds:.1f} s of training" in capsys.readouterr().out
    assert run_of(trainer, [], 1.0).values["s to fid 10"] == seconds
