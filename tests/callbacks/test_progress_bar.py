from pathlib import Path
from unittest.mock import Mock

import pytest
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks import ProgressBar
from lit_gans.callbacks.time_left import TimeLeft
from lit_gans.common.progress import in_words


@pytest.mark.parametrize(
    ("total", "lines"),
    [(60, [*range(3, 61, 3), 10]), (30_000, [10, 100, *range(1000, 30_001, 1000)])],
)
def test_without_a_terminal_20_lines_and_some_early_ones_are_printed(capsys, monkeypatch, total, lines):
    module = Mock(LightningModule)
    trainer = Mock(Trainer, is_global_zero=True, estimated_stepping_batches=total, callbacks=[], global_step=0)
    trainer.default_root_dir = str(Path.cwd() / "outputs/mine")
    trainer.callback_metrics, trainer.lightning_module = {"loss/generator": 0.5}, module
    monkeypatch.setattr(
        "lit_gans.callbacks.progress_bar.TimeLeft", lambda: TimeLeft(lambda: 60.0 * trainer.global_step)
    )
    bar = ProgressBar()
    bar.on_train_start(trainer, module)
    for trainer.global_step in range(1, total + 1):
        bar.on_train_batch_end(trainer, module)
    printed = [f"Mock: iterations 1 to {total}, in outputs/mine"]
    printed += [f"iteration {step}/{total}  {left(total - step)}generator 0.500" for step in sorted(set(lines))]
    assert capsys.readouterr().out.splitlines() == printed


def left(minutes):
    return f"about {in_words(60 * minutes)} left  " if minutes else ""
