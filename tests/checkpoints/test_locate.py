"""The checkpoint that a path names, and the newest good one of a run, where a damaged one is named."""

import logging
import os
import re

import pytest
import torch

from lit_gans.checkpoints.exported import CONFIG, WEIGHTS
from lit_gans.checkpoints.locate import find_checkpoint, newest_good
from lit_gans.common.errors import RefusedInput

from .killed_saves import save_file, save_folder
from .test_saves import flipped, truncated, zeroed

DAMAGES = [truncated, zeroed, flipped]


def run_folder(path, *names):
    (path / "checkpoints").mkdir(parents=True)
    for name in names:
        (path / "checkpoints" / name).write_text("")
    return path


def test_the_best_or_else_the_last_checkpoint_of_a_run_is_loaded_and_named(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="lit_gans")
    both = run_folder(tmp_path / "both", "best.ckpt", "last.ckpt")
    last = run_folder(tmp_path / "last", "last.ckpt")
    assert find_checkpoint(both) == both / "checkpoints/best.ckpt"
    assert find_checkpoint(both / "checkpoints") == both / "checkpoints/best.ckpt"
    assert find_checkpoint(last) == last / "checkpoints/last.ckpt"
    assert [message.split()[-1] for message in caplog.messages] == [
        *[str(both / "checkpoints/best.ckpt")] * 2,
        str(last / "checkpoints/last.ckpt"),
    ]


def test_networks_that_are_exported_to_the_folder_of_their_run_do_not_hide_its_checkpoints(tmp_path):
    run = run_folder(tmp_path / "run", "last.ckpt")
    for name in (WEIGHTS, CONFIG):
        (run / name).write_text("{}")
    assert find_checkpoint(run) == run / "checkpoints/last.ckpt"
    (run / "checkpoints/last.ckpt").unlink()
    assert find_checkpoint(run) == run


def test_the_weights_of_exported_networks_are_read_with_their_folder(tmp_path):
    (tmp_path / WEIGHTS).touch()
    (tmp_path / CONFIG).write_text('{"architectures": []}')
    assert find_checkpoint(tmp_path / WEIGHTS) == tmp_path / WEIGHTS, "of another library"
    (tmp_path / CONFIG).write_text('{"class_path": "lit_gans.models.dcgan.DCGAN"}')
    with pytest.raises(RefusedInput, match=re.escape(f"use its folder {tmp_path}.")):
        find_checkpoint(tmp_path / WEIGHTS)


def test_a_checkpoint_whose_replacement_was_interrupted_is_found(tmp_path):
    run = run_folder(tmp_path / "run", "last.ckpt.lit_gans_old")
    assert find_checkpoint(run) == run / "checkpoints/last.ckpt.lit_gans_old"


def test_what_is_no_checkpoint_is_pointed_to_the_newest_beside_or_below_it(tmp_path):
    for version in (0, 1):
        folder = run_folder(tmp_path / f"name/version_{version}", "last.ckpt")
        os.utime(folder / "checkpoints/last.ckpt", (version + 1, version + 1))
    (tmp_path / "name/version_0/checkpoints/best.ckpt").symlink_to("gone.ckpt")
    (tmp_path / "empty").mkdir()
    step = run_folder(tmp_path / "steps", "step-00000004.ckpt") / "checkpoints/step-00000004.ckpt"
    newest = f"the newest checkpoint in {tmp_path / 'name'} is {tmp_path / 'name/version_1/checkpoints/last.ckpt'}."
    for name, sentence in {
        "nowhere": f"there is no checkpoint at {tmp_path / 'nowhere'}: use the path of a .ckpt file or of the",
        "name/version_7": newest,
        "name": newest,
        "steps": f"the newest checkpoint in {tmp_path / 'steps'} is {step}.",
        "empty": "empty is neither the folder of a run nor a sharded checkpoint: it contains no checkpoints/best.ckpt",
    }.items():
        with pytest.raises(RefusedInput, match=re.escape(sentence)):
            find_checkpoint(tmp_path / name)


# ---- the newest good one


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


def test_an_intact_last_checkpoint_is_used_silently(run, caplog):
    damage(run / "checkpoints/best.ckpt", zeroed)
    assert newest_good(run) == (run / "checkpoints/last.ckpt", 9)
    assert not caplog.messages


@pytest.mark.parametrize("how", DAMAGES)
def test_the_newest_intact_checkpoint_replaces_a_damaged_one_with_a_warning(run, caplog, how):
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


def test_without_an_intact_checkpoint_no_training_starts(run):
    for path in (run / "checkpoints").iterdir():
        damage(path, zeroed)
    with pytest.raises(RefusedInput, match=r"no other checkpoint; resume=none starts a new run\.") as refused:
        newest_good(run)
    for path in (run / "checkpoints").iterdir():
        assert str(path) in str(refused.value)


def test_a_missing_last_checkpoint_gives_a_warning(run, caplog):
    last = run / "checkpoints/last.ckpt"
    last.rename(run / "elsewhere")
    assert newest_good(run) == (run / "checkpoints/step-7.ckpt", 7)
    assert caplog.messages[0].startswith(f"{last} is missing.")
    (run / "elsewhere").rename(f"{last}.lit_gans_old")  # killed between two renames
    assert newest_good(run) == (last.with_name("last.ckpt.lit_gans_old"), 9)


def test_a_run_has_no_checkpoint_or_one_with_a_number_of_iterations(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    assert newest_good(tmp_path) is None
    torch.save({"state_dict": {}, "global_step": "many"}, tmp_path / "checkpoints/last.ckpt")
    with pytest.raises(RefusedInput, match=re.escape("its global_step is not a number")):
        newest_good(tmp_path)
