"""A run that was moved, or refused before it began."""

import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.config.run_folder import (
    moved,
    nothing_left_if_refused,
)


@pytest.mark.parametrize("folder", ["run", "/my/run", "cpu", "run/"])
def test_only_paths_inside_the_folder_are_moved(folder):
    root = folder.rstrip("/")
    kept = [f"/data/my-{root}/photos", f"{root}2", f"{root}-old/a", "cpu", f"/elsewhere{root}", 3, None, f"a {root}/b"]
    nodes = {
        "kept": kept,
        "save_dir": folder,
        "uri": f"sqlite:///{root}/mlflow.db",
        "inner": [{"dirpath": f"{root}/a"}],
    }
    found = moved(nodes, folder, "new")
    assert found == {
        "kept": kept,
        "save_dir": "new" + folder.removeprefix(root),
        "uri": "sqlite:///new/mlflow.db",
        "inner": [{"dirpath": "new/a"}],
    }


def test_a_refused_run_leaves_nothing_and_takes_nothing(tmp_path):
    def begin(folder):
        (folder / "tensorboard").mkdir(parents=True)
        (folder / "tensorboard/events").touch()
        raise RefusedInput("other data")

    def refused(folder, trained=False):
        with pytest.raises(RefusedInput), nothing_left_if_refused(folder, lambda: trained):
            begin(folder)

    run = tmp_path / "run"
    refused(run)
    assert not run.exists()
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/last.ckpt").touch()
    refused(run)
    assert sorted(path.name for path in run.rglob("*")) == ["checkpoints", "last.ckpt"]
    refused(run, trained=True)
    assert (run / "tensorboard/events").exists()
