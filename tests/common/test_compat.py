"""Each private part of another library that `_compat` touches is still there, and still needed."""

import inspect
import os
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import hydra
import pytest
import torch
import yaml
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies.launchers import subprocess_script
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from lit_gans.cli import lightning as lightning_cli
from lit_gans.common._compat import CommandLauncher, lerp_all, run_hydra, start_others_with


def test_hydra_still_takes_no_arguments():
    """`run_hydra` can go once `hydra.main` accepts those of a command line."""
    assert "argv" not in inspect.signature(hydra.main).parameters
    assert "args_parser.parse_args()" in inspect.getsource(hydra.main)


def test_hydra_runs_with_the_arguments_it_is_handed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lit-gans", "this=is", "--not-read"])
    (tmp_path / "some.yaml").write_text("number: 1\nhydra: {run: {dir: .}, output_subdir: null}\n")
    monkeypatch.chdir(tmp_path)
    seen = []
    here = ["--config-dir", str(tmp_path), "hydra/job_logging=none", "hydra/hydra_logging=none"]
    run_hydra([*here, "number=2"], lambda config: seen.append(config.number), "lit_gans.conf", "some")
    sweep = [*here, "number=3,4", "-m", "hydra.sweep.dir=sweep"]
    run_hydra(sweep, lambda config: seen.append(config.number), "lit_gans.conf", "some")
    assert seen == [2, 3, 4]


def raise_value_error(config):
    raise ValueError("of the job")


def test_errors_of_a_job_are_raised(tmp_path, monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.yaml").write_text("hydra: {run: {dir: .}, output_subdir: null}\n")
    with pytest.raises(ValueError, match="of the job"):
        run_hydra(["--config-dir", str(tmp_path)], raise_value_error, "lit_gans.conf", "some")


def test_lightning_still_starts_others_with_sys_argv():
    """`CommandLauncher` can go once Lightning's launcher takes a command."""
    assert "sys.argv" in inspect.getsource(subprocess_script._basic_subprocess_cmd)
    assert "command" not in inspect.signature(_SubprocessScriptLauncher).parameters


def test_further_processes_are_started_with_a_command(tmp_path, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    code = (
        "import os, pathlib; rank = os.environ['LOCAL_RANK']; pathlib.Path(rank).write_text(os.environ['WORLD_SIZE'])"
    )
    monkeypatch.chdir(tmp_path)
    lightnings = _SubprocessScriptLauncher(LightningEnvironment(), 3, 1)
    launcher = CommandLauncher(lightnings, [sys.executable, "-c", code])
    launcher._call_children_scripts()
    assert [process.wait(60) for process in launcher.procs] == [0, 0]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"1": "3", "2": "3"}
    assert os.environ["LOCAL_RANK"] == "0"


def test_only_trainers_that_start_processes_get_the_launcher():
    for devices, kind in ((1, type(None)), (2, CommandLauncher)):
        strategy = "ddp" if devices > 1 else "auto"
        trainer = Trainer(
            accelerator="cpu", devices=devices, strategy=strategy, logger=False, enable_checkpointing=False
        )
        start_others_with(trainer, ["command"])
        assert type(trainer.strategy.launcher) is kind


@pytest.mark.parametrize("ours", [True, False])
def test_jsonargparse_still_hands_the_arguments_of_a_replaced_class_on(command, monkeypatch, ours):
    """`other_class_other_arguments` can go once the second case fails."""
    if not ours:
        monkeypatch.setattr(lightning_cli, "other_class_other_arguments", nullcontext)
    fit = ["fit", "--model", "DCGAN", "--data", "Digits", "--model.generator_optimizer", "RMSprop", "--print_config"]
    code, out, err = command(*fit)
    assert code == 0, err
    optimizer = yaml.safe_load(out)["model"]["init_args"]["generator_optimizer"]["init_args"]
    assert optimizer["learning_rate"] == (5e-5 if ours else 2e-4)


def test_many_tensors_are_interpolated_by_a_name_that_every_allowed_torch_has():
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    targets, sources = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.full((3,), 2.0)]
    lerp_all(targets, sources, 0.25)
    assert [target.tolist() for target in targets] == [[0.25] * 2, [0.5] * 3]
    allowed = next(text for text in pyproject["project"]["dependencies"] if text.startswith("torch>"))
    assert allowed.startswith("torch>=2.11,"), "lerp_all is needless if this torch has torch.foreach"
