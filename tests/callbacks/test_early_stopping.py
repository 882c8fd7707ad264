import pytest
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import GenerativeMetrics, RunCheckpoint, StopOnPlateau
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.digits import DigitsExtractor


class Given(Measurement):
    """Returns the given values, one after another, from iteration 0 on."""

    headline = "metric/given"

    def __init__(self, values, direction="min", every_n_steps=1):
        super().__init__(every_n_steps, 1, 1, 0)
        self.remaining, self.directions = iter(values), {"metric/given": direction}

    def measure(self, trainer, module):
        return {"metric/given": next(self.remaining)}


def stopped_at(tiny_gan, random_images, fit, measured, **settings):
    stopping = StopOnPlateau(monitor="metric/given", **settings)
    trainer = fit(tiny_gan(), random_images(), 6, callbacks=[stopping, measured])
    return trainer.global_step


def test_stops_after_so_many_measurements_without_a_better_one(tiny_gan, random_images, fit):
    values = (9.0, 5.0, 3.0, 4.0, 3.0, 2.0, 1.0)
    assert stopped_at(tiny_gan, random_images, fit, Given(values), patience=2) == 4
    assert stopped_at(tiny_gan, random_images, fit, Given(values), patience=3) == 6
    assert stopped_at(tiny_gan, random_images, fit, Given(values), patience=None) == 6
    assert stopped_at(tiny_gan, random_images, fit, Given(values, "max"), patience=1) == 1
    assert stopped_at(tiny_gan, random_images, fit, Given(values), patience=1, mode="max") == 1


def test_an_old_value_is_no_measurement(tiny_gan, random_images, fit):
    assert stopped_at(tiny_gan, random_images, fit, Given((9.0, 5.0, 4.0, 3.0), every_n_steps=2), patience=1) == 6


def test_a_resumed_run_waits_on(tiny_gan, random_images, fit):
    stopping = StopOnPlateau(patience=3, monitor="metric/given")
    stopping.load_state_dict({"best_value": 1.0, "waited": 1})
    assert stopping.state_dict() == {"best_value": 1.0, "waited": 1}
    trainer = fit(tiny_gan(), random_images(), 6, callbacks=[Given((2.0, 3.0, 0.5)), stopping])
    assert trainer.global_step == 1


@pytest.mark.parametrize("callback", [StopOnPlateau, RunCheckpoint])
def test_a_value_that_nothing_logs_is_refused_at_once(tiny_gan, random_images, fit, callback, tmp_path):
    settings = {"patience": 1} if callback is StopOnPlateau else {}

    def refused(name, valid, *others):
        module = tiny_gan()
        with pytest.raises(RefusedInput, match=f"monitor={name}: nothing measures it; did you mean '{valid}'"):
            fit(module, random_images(), 3, callbacks=[*others, callback(monitor=name, **settings)], **here)
        return module.trainer.global_step

    here = {"enable_checkpointing": callback is RunCheckpoint}
    assert refused("metric/fid_digit", "metric/fid_digits", GenerativeMetrics(DigitsExtractor())) == 0
    assert refused("los/generator", "loss/generator") == 1, "known after the first iteration"
    own = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: module.log("own", 1.0))  # of another project
    for name in ("loss/generator", "own"):
        callbacks = [own, callback(monitor=name, **settings)]
        here["default_root_dir"] = tmp_path / name
        assert fit(tiny_gan(), random_images(), 2, callbacks=callbacks, **here).global_step == 2
