"""What the progress bar prints, and the time that a training still takes, on a clock that the tests set."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Timer

from lit_gans.callbacks import IterationProgressBar, PairedMetrics
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.progress_bar import TimeLeft
from lit_gans.common.progress import in_words


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def slowed(function, clock, seconds):
    """Lets time pass before each call of a function."""

    def slow(*arguments, **settings):
        clock.now += seconds
        return function(*arguments, **settings)

    return slow


def measurement(every_n_steps, seconds=0.0, measured_at=0):
    found = Measurement(every_n_steps, 1, 1, 0)
    found.seconds, found.measured_at = seconds, measured_at
    return found


def run(clock, left, iterations, seconds, first=1):
    """Lets iterations pass, which take `seconds` each, and returns a trainer at the last of them."""
    for step in range(first, first + iterations):
        clock.now += seconds
        left.end_iteration(step)
    return Mock(Trainer, global_step=first + iterations - 1, callbacks=[])


def test_iterations_to_come_take_as_long_as_those_before_except_the_first():
    clock = Clock()
    left = TimeLeft(clock)
    trainer = run(clock, left, 1, 300.0)  # compiles
    assert left.seconds(trainer, 1000) is None
    trainer = run(clock, left, 9, 2.0, first=2)
    assert left.seconds(trainer, 1000) == pytest.approx(2.0 * 990)
    assert left.seconds(trainer, None) is None, "a training without an end"
    assert left.seconds(trainer, 10) is None, "the last iteration"


def test_an_estimate_forgets_what_is_two_windows_ago():
    clock = Clock()
    left = TimeLeft(clock)
    run(clock, left, 201, 1.0)
    trainer = run(clock, left, 50, 4.0, first=202)
    assert left.seconds(trainer, 1251) == pytest.approx(2.0 * 1000), "100 of the one kind, 50 of the other"
    trainer = run(clock, left, 50, 4.0, first=252)
    assert left.seconds(trainer, 1301) == pytest.approx(4.0 * 1000)


def test_measurements_to_come_are_counted_and_those_before_are_no_iterations():
    clock = Clock()
    left = TimeLeft(clock)
    trainer = run(clock, left, 11, 1.0)
    left.pause()
    clock.now += 50.0
    left.go_on()
    trainer = run(clock, left, 10, 1.0, first=12)
    trainer.callbacks = [measurement(100, seconds=40.0), measurement(1000, seconds=7.0)]
    assert left.seconds(trainer, 221) == pytest.approx(200 * 1.0 + 3 * 40.0 + 1 * 7.0)


@pytest.mark.parametrize("total", [1000, 1001, 1100])
@pytest.mark.parametrize("measured_at", [0, 250, 1000])
def test_the_number_of_measurements_to_come(total, measured_at):
    to_come = [step for step in range(1, total + 1) if (step % 250 == 0 or step == total) and step > measured_at]
    assert measurement(250, measured_at=measured_at).num_left(total) == len(to_come)


def test_a_limit_of_time_may_come_first():
    clock = Clock()
    left = TimeLeft(clock)
    trainer = run(clock, left, 11, 1.0)
    timer = Timer("00:00:01:00")
    timer.time_remaining = lambda: 60.0
    trainer.callbacks = [timer]
    assert left.seconds(trainer, 1011) == 60.0
    assert left.seconds(trainer, 31) == pytest.approx(20.0)
    assert left.seconds(trainer, None) == 60.0


def test_a_training_says_what_is_left(tiny_gan, random_images, fit, capsys, monkeypatch):
    """An iteration takes a minute here, and a measurement an hour."""
    clock, module, metrics = Clock(), tiny_gan("pix2pix"), PairedMetrics(every_n_steps=5, num_samples=4)
    monkeypatch.setattr("lit_gans.callbacks.progress_bar.TimeLeft", lambda: TimeLeft(clock))
    for owner, name, seconds in ((module, "on_train_batch_start", 60.0), (metrics, "measure", 3600.0)):
        monkeypatch.setattr(owner, name, slowed(getattr(owner, name), clock, seconds))
    fit(module, random_images(), 12, callbacks=[metrics, IterationProgressBar()], enable_progress_bar=True)
    assert 0 < metrics.seconds < 3600, "by its own clock"
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration ")]
    told = ["", *(left(60 * (12 - step)) for step in range(2, 12)), ""]
    starts = [f"iteration {step}/12  {part}" for step, part in enumerate(told, start=1)]
    assert all(line.startswith(start) for line, start in zip(printed, starts, strict=True))
    assert not any("left" in printed[place] for place in (0, -1))


@pytest.mark.parametrize(
    ("total", "seconds", "lines"),
    [
        (60, 60, [*range(3, 61, 3), 10]),
        (3000, 3, [10, 100, *range(150, 3001, 150), *range(250, 3001, 150)]),
    ],
    ids=["20 and early ones", "after five minutes too"],
)
def test_lines_are_printed_without_a_terminal(capsys, monkeypatch, total, seconds, lines):
    module = Mock(LightningModule)
    trainer = Mock(Trainer, is_global_zero=True, estimated_stepping_batches=total, callbacks=[], global_step=0)
    trainer.default_root_dir = str(Path.cwd() / "outputs/mine")
    trainer.callback_metrics, trainer.lightning_module = {"loss/generator": 0.5}, module
    monkeypatch.setattr(
        "lit_gans.callbacks.progress_bar.TimeLeft", lambda: TimeLeft(lambda: float(seconds * trainer.global_step))
    )
    bar = IterationProgressBar()
    bar.on_train_start(trainer, module)
    for trainer.global_step in range(1, total + 1):
        bar.on_train_batch_end(trainer, module)
    printed = [f"Mock: iterations 1 to {total}, in outputs/mine"]
    printed += [
        f"iteration {step}/{total}  {left(seconds * (total - step))}generator 0.500" for step in sorted(set(lines))
    ]
    assert capsys.readouterr().out.splitlines() == printed


def left(seconds):
    return f"about {in_words(seconds)} left  " if seconds else ""
