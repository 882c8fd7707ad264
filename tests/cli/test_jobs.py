"""Jobs of a sweep, each of which equals the same job alone."""

import os
import sys
import types

import matplotlib
import pytest
import torch
from lightning.pytorch.loggers import WandbLogger

from lit_gans.callbacks import EMA
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from tests.commands import TINY


def weights(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def process_state():
    flags = torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    return (
        dict(os.environ),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        matplotlib.rcParams["figure.dpi"],
        flags,
    )


def change_process_state():
    os.environ["LIT_GANS_TEST"] = "1"
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("medium")
    matplotlib.rcParams["figure.dpi"] = 7


@pytest.mark.runs
@pytest.mark.parametrize("fails", [False, True])
def test_a_job_after_one_that_changes_the_process_equals_the_same_job_alone(train, tmp_path, monkeypatch, fails):
    """Lightning sets the flags of its Trainer for the process; a callback of a user may set more."""

    def change(self, trainer, *_):
        if trainer.lightning_module.latent_dim == 9:
            change_process_state()
            if fails:
                raise FloatingPointError("diverged")

    monkeypatch.setattr(EMA, "on_train_end", change)
    arguments, before = [*TINY, "trainer.max_steps=3"], process_state()
    assert train(*arguments, "hydra.run.dir=alone") == 0, train.err
    changes = ["model.latent_dim=9", "+trainer.deterministic=warn"]
    assert train("-m", *arguments, *changes, "seed=0") == fails, train.err
    assert process_state() == before
    assert train("-m", *arguments, "hydra.sweep.dir=after", "model.latent_dim=9,8") == fails, train.err
    alone, after = weights(tmp_path / "alone"), weights(tmp_path / "after/1")
    assert {name for name in alone if not torch.equal(alone[name], after[name])} == set()


class FakeRun:
    """What Lightning and lit_gans call of a W&B run."""

    def __init__(self, runs):
        self.logged, self.summary, self.config, self.exit_code = [], {}, FakeConfig(), None
        self.id = self.name = str(len(runs))

    def log(self, values):
        self.logged.append(values)
        self.summary |= values


class FakeConfig(dict):
    def update(self, params, allow_val_change=False):
        super().update(params)


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for W&B, which keeps one open run for the process."""
    module = types.ModuleType("wandb")
    module.run, module.runs = None, []

    def init(**_):
        module.run = FakeRun(module.runs)
        module.runs.append(module.run)
        return module.run

    def finish(exit_code=0):
        if module.run is not None:
            module.run.exit_code, module.run = exit_code, None

    module.init, module.finish, module.Image = init, finish, str
    for name in ("wandb.sdk", "wandb.sdk.lib", "wandb.wandb_run"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["wandb.sdk.lib"].RunDisabled = sys.modules["wandb.wandb_run"].Run = FakeRun
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", True)
    return module


def logger_of(trainer):
    return next(each for each in trainer.loggers if isinstance(each, WandbLogger))


WANDB = [*TINY[:-1], "logger=wandb", "trainer.max_steps=1"]


@pytest.mark.runs
def test_each_job_has_a_separate_wandb_run(train, wandb, monkeypatch):
    def diverge(self, trainer, *_):
        if trainer.lightning_module.seed == 1:
            raise FloatingPointError("diverged")

    monkeypatch.setattr(EMA, "on_train_end", diverge)
    assert train("-m", *WANDB, "seed=0,1,2") == 1
    assert [run.exit_code for run in wandb.runs] == [0, 1, 0]
    assert wandb.run is None
    assert all(run.logged for run in wandb.runs)


@pytest.mark.runs
def test_trainings_in_one_notebook_have_wandb_runs_of_their_own(wandb, tmp_path, monkeypatch):
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        module, data, trainer = build(compose(*WANDB))
        trainer.fit(module, data)
        logger_of(trainer).experiment.log({"after": 1.0})  # the run is open until the next training
    assert [run.exit_code for run in wandb.runs] == [0, None]
    wandb.finish()
    own = wandb.init(name="of the user")
    _, _, trainer = build(compose(*WANDB))
    with pytest.warns(UserWarning, match="already in progress"):
        assert logger_of(trainer).experiment is own


def test_an_mlflow_run_that_a_callback_begins_ends_with_its_job(train, monkeypatch):
    ended = []
    mlflow = types.ModuleType("mlflow")
    mlflow.active_run = lambda: None if ended else "run"
    mlflow.end_run = ended.append
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    assert train(*TINY, "trainer.max_steps=1") == 0
    assert ended == ["FINISHED"]
