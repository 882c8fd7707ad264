"""Hydra's private parts are still there, and still needed."""

import inspect
import sys

import hydra
import pytest

from lit_gans.common._compat.hydra import run_hydra


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
