"""Hydra's private parts are still needed; every command line of the tests shows that they are still there."""

import inspect

import hydra

from lit_gans.common._compat.hydra import run_hydra


def test_hydra_still_takes_no_arguments():
    """`run_hydra` can go once `hydra.main` accepts those of a command line."""
    assert "argv" not in inspect.signature(hydra.main).parameters
    assert "args_parser.parse_args()" in inspect.getsource(hydra.main)


def test_a_folder_of_configurations_is_searched(tmp_path, monkeypatch):
    (tmp_path / "some.yaml").write_text("number: 1\nhydra: {run: {dir: .}, output_subdir: null}\n")
    monkeypatch.chdir(tmp_path)
    seen = []
    here = ["--config-dir", str(tmp_path), "hydra/job_logging=none", "hydra/hydra_logging=none"]
    run_hydra([*here, "number=2"], lambda config: seen.append(config.number), "lit_gans.conf", "some")
    assert seen == [2]
