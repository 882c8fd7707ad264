"""A damaged newest checkpoint is named, and the newest good one is used, with what that loses."""

import logging
import re

import pytest
import torch

from lit_gans.checkpoints.locate import newest_good
from lit_gans.common.errors import RefusedInput

from .killed_saves import save_file, save_folder
from .test_saves import flipped, truncated, zeroed

DAMAGES = [truncated, zeroed, flipped]


@pytest.fixture(params=[save_file, save_folder], ids=["file", "folder"])
def run(request, tmp_path):
    """The folder of a run with checkpoints of iterations 4, 7 and 9."""
    for name, iteration in {"best.ckpt": 4, "last.ckpt": 9, "step-7.ckpt": 7}.items():
        request.param(iteration, tmp_path / "checkpoints" / name)
    (tmp_path / "metrics.csv").write_text("step,loss\r\n3,1.0\r\n12,1.0\r\n1")
    return tmp_path


def damage(path, how):
    file = max(path.rglob("*.safetensors")) if path.is_dir() else path
    file.write_bytes(how(file.read_bytes()))


def test_a_good_last_checkpoint_is_taken_without_a_word(run, caplog):
    damage(run / "checkpoints/best.ckpt", zeroed)
    assert newest_good(run) == (run / "checkpoints/last.ckpt", 9)
    assert not caplog.messages


@pytest.mark.parametrize("how", DAMAGES)
def test_the_newest_good_one_takes_its_place_with_a_warning(run, caplog, how):
    last, step = run / "checkpoints/last.ckpt", run / "checkpoints/step-7.ckpt"
    damage(last, how)
    assert newest_good(run) == (step, 7)
    (warning,) = caplog.messages
    assert warning.startswith(f"{last} ")
    assert warning.endswith(
        f"Resuming from {step} at iteration 7 instead: iterations 8 to 12, the last in metrics.csv, are trained again."
    )
    damage(step, how)
    (run / "metrics.csv").unlink()
    assert newest_good(run) == (run / "checkpoints/best.ckpt", 4)
    assert str(step) in caplog.messages[1]
    assert caplog.messages[1].endswith("at iteration 4 instead: iterations after 4 are trained again.")


def test_without_a_good_one_no_new_training_begins(run):
    for path in (run / "checkpoints").iterdir():
        damage(path, zeroed)
    with pytest.raises(RefusedInput, match=r"no other checkpoint; resume=none starts a new run\.") as refused:
        newest_good(run)
    for path in (run / "checkpoints").iterdir():
        assert str(path) in str(refused.value)


def test_a_missing_last_checkpoint_is_said(run, caplog):
    last = run / "checkpoints/last.ckpt"
    last.rename(run / "elsewhere")
    assert newest_good(run) == (run / "checkpoints/step-7.ckpt", 7)
    assert caplog.messages[0].startswith(f"{last} is missing.")
    (run / "elsewhere").rename(f"{last}.old")  # killed between two renames
    assert newest_good(run) == (last.with_name("last.ckpt.old"), 9)


def test_a_run_without_checkpoints_has_none(tmp_path):
    assert newest_good(tmp_path) is None


def test_a_checkpoint_without_a_number_of_iterations_is_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    torch.save({"state_dict": {}, "global_step": "many"}, tmp_path / "checkpoints/last.ckpt")
    with pytest.raises(RefusedInput, match=re.escape("its global_step is not a number")):
        newest_good(tmp_path)


def test_only_rank_zero_warns(run, caplog, monkeypatch):
    from lightning.pytorch.utilities import rank_zero_only

    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    damage(run / "checkpoints/last.ckpt", zeroed)
    assert newest_good(run) == (run / "checkpoints/step-7.ckpt", 7)
    assert not caplog.messages
