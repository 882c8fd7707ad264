from pathlib import Path
from unittest.mock import Mock

import pytest
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks import ProgressBar
from lit_gans.callbacks.time_left import TimeLeft
from lit_gans.common.progress import in_words


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
    bar = ProgressBar()
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
