"""A save is complete or did not happen, and damage is found when a checkpoint is read."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lit_gans.checkpoints.format import CheckpointFiles, read_checkpoint
from lit_gans.common.errors import RefusedInput

from .killed_saves import save_file, save_folder

ROOT = Path(__file__).parents[2]
KILLS = 40
SAVES = {"file": save_file, "folder": save_folder}


@pytest.mark.faults
@pytest.mark.parametrize("kind", SAVES)
def test_no_kill_leaves_an_unreadable_checkpoint_or_anything_beside_it(tmp_path, kind):
    """The temporary folder lies on another file system, where there is one: a rename from there would be a copy."""
    other = Path("/dev/shm")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if other.is_dir() and other.stat().st_dev != tmp_path.stat().st_dev:
        environment["TMPDIR"] = str(other)
    command = [sys.executable, "-m", "tests.checkpoints.killed_saves", kind, str(tmp_path / "run"), str(KILLS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("interrupted") > KILLS // 5, "the kills came while something was unfinished"
    assert found == {"kills": KILLS, "unreadable": 0, "mixed": 0, "lost": 0, "left": 0}


@pytest.fixture(params=SAVES)
def saved(request, tmp_path):
    """A checkpoint of either kind."""
    path = tmp_path / "last.ckpt"
    SAVES[request.param](7, path)
    assert read_checkpoint(path)["global_step"] == 7
    assert [*tmp_path.iterdir()] == [path]
    return path


def files_of(path):
    return sorted(path.rglob("*")) if path.is_dir() else [path]


def truncated(content):
    return content[: len(content) // 2]


def zeroed(content):
    return bytes(len(content))


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [truncated, zeroed, flipped, lambda content: b""])
def test_damage_of_any_file_is_refused_by_its_name(saved, damage):
    for file in files_of(saved):
        good = file.read_bytes()
        file.write_bytes(damage(good))
        for read in (read_checkpoint, CheckpointFiles().load_checkpoint):
            with pytest.raises(RefusedInput, match=re.escape(str(saved))) as refused:
                read(saved)
            assert "weights_only" not in str(refused.value)
        file.write_bytes(good)
    assert read_checkpoint(saved)["global_step"] == 7


def test_a_folder_from_which_a_file_is_missing_is_refused(tmp_path):
    path = tmp_path / "last.ckpt"
    save_folder(7, path)
    for file in files_of(path):
        file.rename(tmp_path / "elsewhere")
        with pytest.raises(RefusedInput, match=r"missing|is not complete|has no rest.pt|is neither"):
            read_checkpoint(path)
        (tmp_path / "elsewhere").rename(file)
    assert read_checkpoint(path)["global_step"] == 7
