"""The checkpoint that a path names: a file, a folder of a run, a sharded folder; anything else is pointed to one."""

import logging
import os
import re

import pytest

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.common.errors import RefusedInput


def run_folder(path, *names):
    (path / "checkpoints").mkdir(parents=True)
    for name in names:
        (path / "checkpoints" / name).write_text("")
    return path


def test_a_file_and_a_sharded_folder_are_themselves(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="lit_gans")
    run = run_folder(tmp_path / "run", "best.ckpt", "last.ckpt")
    sharded = tmp_path / "sharded.ckpt"
    sharded.mkdir()
    (sharded / "rest.pt").write_text("")
    assert find_checkpoint(run / "checkpoints/last.ckpt") == run / "checkpoints/last.ckpt"
    assert find_checkpoint(str(sharded)) == sharded
    assert not caplog.messages


def test_a_run_is_its_best_checkpoint_else_its_last_and_that_is_said(tmp_path, caplog):
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


def test_a_checkpoint_whose_replacement_was_interrupted_is_found(tmp_path):
    run = run_folder(tmp_path / "run", "last.ckpt.old")
    assert find_checkpoint(run) == run / "checkpoints/last.ckpt.old"


def test_what_is_no_checkpoint_is_pointed_to_one(tmp_path):
    for version in (0, 1):
        folder = run_folder(tmp_path / f"name/version_{version}", "last.ckpt")
        os.utime(folder / "checkpoints/last.ckpt", (version + 1, version + 1))
    (tmp_path / "name/version_1/samples").mkdir()
    (tmp_path / "others").mkdir()
    (tmp_path / "others/mine.ckpt").write_text("")
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "nowhere": "there is no checkpoint at",
        "name": f"name holds several runs: name one of them, the newest is {tmp_path / 'name/version_1'}.",
        "name/version_1/samples": f"that of this run is {tmp_path / 'name/version_1/checkpoints/last.ckpt'}.",
        "others": f"name the file, for example {tmp_path / 'others/mine.ckpt'}.",
        "empty": "empty is neither the folder of a run nor a sharded checkpoint: it has no checkpoints/best.ckpt",
    }.items():
        with pytest.raises(RefusedInput, match=re.escape(sentence)):
            find_checkpoint(tmp_path / name)
