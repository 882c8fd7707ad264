import pytest
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import GenerativeMetrics, RunCheckpoint, StopOnPlateau
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.digits import DigitsExtractor


class Given(Measurement):
    """Returns the given values, one after another, from iteration 0 on."""

    def __init__(self, values, direction="min", every_n_steps=1, headline="metric/given"):
        super().__init__(every_n_steps, 1, 1, 0)
        self.headline, self.remaining, self.directions = headline, iter(values), {headline: direction}

    @property
    def state_key(self):
        name = type(self).__name__
        return name if self.headline == "metric/given" else f"{name}({self.headline})"

    def measure(self, trainer, module):
        return {self.headline: next(self.remaining)}


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
    state = {"metric": "metric/given", "protocol": {}, "read_at": 3, "best_value": 1.0, "waited": 1}
    stopping.load_state_dict(state)
    assert stopping.state_dict() == state
    trainer = fit(tiny_gan(), random_images(), 6, callbacks=[Given((2.0, 3.0, 0.5)), stopping])
    assert trainer.global_step == 1


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_the_best_of_another_metric_is_forgotten(tiny_gan, random_images, fit, tmp_path):
    """A smaller value of the first metric would keep the best checkpoint of the second one from being saved."""

    def train(max_steps, fid, monitor, resume=None):
        given = Given([50.0, 41.0, 40.0])
        own = [StopOnPlateau(2, monitor), RunCheckpoint(1, monitor)]
        callbacks = [Given(fid, headline="metric/fid_given"), given, *own]
        trainer = fit(tiny_gan(), random_images(), max_steps, resume, callbacks=callbacks, enable_checkpointing=True)
        return trainer, *own

    last = tmp_path / "checkpoints/last.ckpt"
    _, _, first = train(2, [9.0, 2.0, 3.0], "auto")
    assert (first.best_step, first.best_value) == (1, 2.0)
    _, stopping, same = train(3, [1.0], "metric/fid_given", last)
    assert (same.best_step, same.best_value, same.untrained_value) == (3, 1.0, 9.0)
    assert (stopping.best_value, stopping.waited) == (1.0, 0)
    with pytest.warns(UserWarning, match="is of metric/fid_given, but metric/given is monitored now"):
        trainer, stopping, other = train(6, [5.0] * 3, "metric/given", last)
    assert (trainer.global_step, other.best_step, other.best_value, other.untrained_value) == (6, 6, 40.0, None)
    assert (stopping.best_value, stopping.waited) == (40.0, 0)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_the_best_of_other_settings_of_the_measurement_is_forgotten(tiny_gan, random_images, fit, tmp_path):
    """The FID of fewer images is larger: no later checkpoint would be the best one."""

    def train(max_steps, values, num_samples, resume=None):
        given = Given(values)
        given.num_samples = num_samples
        own = [StopOnPlateau(9, "metric/given"), RunCheckpoint(1, "metric/given")]
        fit(tiny_gan(), random_images(), max_steps, resume, callbacks=[given, *own], enable_checkpointing=True)
        return given, *own

    last = tmp_path / "checkpoints/last.ckpt"
    train(2, [9.0, 2.0, 3.0], 1)
    given, stopping, checkpoint = train(3, [2.5], 1, last)
    assert (checkpoint.best_step, checkpoint.untrained_value, stopping.waited) == (1, 9.0, 2)
    assert given.best == {"metric/given": (2.0, 1)}
    with pytest.warns(UserWarning, match=r"measured with other settings \(num_fake: 1 and 2\): the best starts anew"):
        given, stopping, checkpoint = train(5, [8.0, 7.0], 2, last)
    assert (checkpoint.best_step, checkpoint.best_value, checkpoint.untrained_value) == (5, 7.0, None)
    assert (stopping.best_value, stopping.waited) == (7.0, 0)
    assert given.best == {"metric/given": (7.0, 5)}
    assert given.first == {}


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
    assert refused("los/generator", "loss/generator", Given([1.0] * 9)) == 1, "known after the first iteration"
    own = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: module.log("own", 1.0))  # of another project
    for name in ("loss/generator", "own"):
        callbacks = [own, Given([1.0] * 9), callback(monitor=name, **settings)]
        here["default_root_dir"] = tmp_path / name
        assert fit(tiny_gan(), random_images(), 2, callbacks=callbacks, **here).global_step == 2


@pytest.mark.parametrize(
    ("monitor", "measured", "sentence"),
    [
        ("loss/generator", [], "patience=2: nothing is measured, .* use Lightning's EarlyStopping"),
        ("auto", [Given([1.0])], r"patience=2: no FID is measured, .* that is measured \(metric/given\) or logged"),
    ],
)
def test_a_run_that_would_never_stop_is_refused(tiny_gan, random_images, fit, monitor, measured, sentence):
    module = tiny_gan()
    with pytest.raises(RefusedInput, match=sentence):
        fit(module, random_images(), 3, callbacks=[*measured, StopOnPlateau(2, monitor)])
    assert module.trainer.global_step == 0


LOGS = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: module.log("own", 1.0))


@pytest.mark.parametrize("others", [0, 1])
def test_a_logged_value_counts_once_an_iteration(tiny_gan, random_images, fit, others):
    measured = [Given([1.0] * 9), Given([1.0] * 9, headline="metric/other")][: 1 + others]
    stopping = StopOnPlateau(4, "own")
    assert fit(tiny_gan(), random_images(), 8, callbacks=[LOGS, *measured, stopping]).global_step == 5


@pytest.mark.parametrize("first", ["stopping", "measured"])
def test_a_value_of_before_a_resume_does_not_count_again(tiny_gan, random_images, fit, tmp_path, first):
    def train(max_steps, given, other, resume=None):
        own = [StopOnPlateau(9, "metric/given"), RunCheckpoint(1, "metric/given")]
        measured = [Given(given, every_n_steps=2), Given(other, headline="metric/other")]
        callbacks = [*own, *measured] if first == "stopping" else [*measured, *own]
        fit(tiny_gan(), random_images(), max_steps, resume, callbacks=callbacks, enable_checkpointing=True)
        state = own[0].state_dict()
        assert state.pop("protocol") == measured[0].protocol != {}
        return state

    last = tmp_path / "checkpoints/last.ckpt"
    expected = {"metric": "metric/given", "read_at": 2, "best_value": 5.0, "waited": 1}
    assert train(2, [5.0, 7.0], [1.0] * 3) == expected
    assert train(3, [6.0], [1.0], last) == {**expected, "read_at": 3, "waited": 2}
    assert train(5, [4.0, 8.0], [1.0] * 2, last) == {**expected, "read_at": 5, "best_value": 4.0}


def test_patience_without_a_fid_is_refused(tiny_gan, random_images, fit):
    said = r"patience=2: no FID is measured.* set monitor= to a key that is measured \(metric/given\)"
    with pytest.raises(RefusedInput, match=said):
        fit(tiny_gan(), random_images(), 3, callbacks=[Given([9.0] * 4), StopOnPlateau(2)])


def test_the_state_of_another_metric_is_loaded():
    assert RunCheckpoint().loads_state_of("RunCheckpoint(metric/fid_digits)", {})
    assert RunCheckpoint(monitor="metric/fid_digits").loads_state_of("RunCheckpoint", {})
