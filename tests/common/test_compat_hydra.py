"""Hydra's private parts are still there, and still needed."""

import inspect
import sys

import hydra
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.errors import ConfigCompositionException

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


def test_a_run_composes_its_configuration_once_and_a_file_may_ask_for_a_sweep(tmp_path, monkeypatch):
    (tmp_path / "some.yaml").write_text("number: 1\nhydra: {run: {dir: .}, sweep: {dir: .}, output_subdir: null}\n")
    monkeypatch.chdir(tmp_path)
    seen, composed, original = [], [], ConfigLoaderImpl.load_configuration
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", lambda *a, **k: composed.append(1) or original(*a, **k))
    here = ["--config-dir", str(tmp_path), "hydra/job_logging=none", "hydra/hydra_logging=none"]
    run_hydra([*here, "number=2"], lambda config: seen.append(config.number), "lit_gans.conf", "some")
    assert (seen, len(composed)) == ([2], 1)
    (tmp_path / "sweeping.yaml").write_text("defaults: [some, _self_]\nhydra: {mode: MULTIRUN}\n")
    for overrides, numbers in ((["number=3,4"], [3, 4]), ([], [1])):
        seen.clear()
        run_hydra([*here, *overrides], lambda config: seen.append(config.number), "lit_gans.conf", "sweeping")
        assert seen == numbers
    with pytest.raises(ConfigCompositionException, match="--multirun"):
        run_hydra([*here, "number=3,4"], lambda config: None, "lit_gans.conf", "some")


def test_hydra_still_composes_twice():
    """`_Once` can go once `hydra.mode` is read from the configuration of the run."""
    assert "compose_config" in inspect.getsource(Hydra.get_mode)


def raise_value_error(config):
    raise ValueError("of the job")


def test_errors_of_a_job_are_raised(tmp_path, monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.yaml").write_text("hydra: {run: {dir: .}, output_subdir: null}\n")
    with pytest.raises(ValueError, match="of the job"):
        run_hydra(["--config-dir", str(tmp_path)], raise_value_error, "lit_gans.conf", "some")
