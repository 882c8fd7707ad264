"""Every wrong command line ends before any device work with exit code 2 and one sentence, and leaves nothing behind.

Every line is run; those that compose a training, 0.3 s each, one of six by default and the others in the slow tier.
"""

import json
import os
import shlex
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

from lit_gans.cli import main as cli
from lit_gans.cli.commands import commands as available
from lit_gans.training.adversarial import AdversarialModule
from tests.cli.wrong_lines import DATA, OTHERS, TYPED, rows
from tests.cli.wrong_train_lines import TRAIN, TUNE
from tests.commands import TINY

LINES = [(f"train {shlex.join(TINY)} {line}", sentence) for line, sentence in rows(TRAIN)]
LINES += [*rows(TUNE), *rows(DATA), *rows(OTHERS), *rows(TYPED)]
NAMES = [line.removeprefix(f"train {shlex.join(TINY)} ") for line, _ in LINES]
NUM_COMPOSED = len(rows(TRAIN)) + len(rows(TUNE))
CASES = [
    pytest.param(*case, id=name, marks=pytest.mark.slow if index < NUM_COMPOSED and index % 6 else ())
    for index, (case, name) in enumerate(zip(LINES, NAMES, strict=True))
]
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow"}  # logger and extra: module


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory):
    """A folder with a run, and files of every wrong kind."""
    folder = tmp_path_factory.mktemp("wrong")
    assert cli.run(["train", *TINY, "trainer.max_steps=1", f"hydra.run.dir={folder / 'run'}"]) == 0
    last = (folder / "run/checkpoints/last.ckpt").read_bytes()
    (folder / "torn.ckpt").write_bytes(last[: len(last) // 2])
    torch.save({"weights": 1}, folder / "foreign.ckpt")
    (folder / "text.txt").write_text("no checkpoint, and no folder")
    (folder / "list.json").write_text(json.dumps([1]))
    (folder / "bad.yaml").write_text("model: [\n")
    (folder / "unknown.yaml").write_text("modle: {class_path: DCGAN}\n")
    (folder / "large.yaml").touch()
    os.truncate(folder / "large.yaml", 2**42)
    (folder / "empty").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged/results.json").write_text("{")
    (folder / "photos").mkdir()
    for index in range(4):
        Image.new("RGB", (16, 16), (index, 0, 0)).save(folder / "photos" / f"{index}.png")
    return folder


@pytest.fixture
def refused(command, wrong_files, monkeypatch):
    """Runs a command line that must be refused in the folder of wrong files, and returns its sentence."""

    def worked(*arguments, **settings):
        raise AssertionError("device work began")

    def contents():
        return {path: path.stat().st_mtime_ns for path in wrong_files.rglob("*") if path.is_file()}

    monkeypatch.setattr(AdversarialModule, "training_step", worked)
    monkeypatch.setattr(AdversarialModule, "decode", worked)
    monkeypatch.chdir(wrong_files)

    def run(line):
        before, folders = contents(), {path for path in wrong_files.rglob("*") if path.is_dir()}
        code, out, err = command(*shlex.split(line))
        assert code == 2, err
        assert "Traceback" not in err
        *notices, sentence = err.strip().splitlines()
        assert sentence.startswith("lit-gans: "), err
        # which checkpoint was found and its iteration
        assert all(notice.startswith(("checkpoint  ", "iteration   ")) for notice in notices), err
        assert not out.strip()
        assert contents() == before
        left = {path for path in wrong_files.rglob("*") if path.is_dir()} - folders
        assert all(path.is_relative_to(wrong_files / "outputs/sweeps") or path.name == "outputs" for path in left), left
        return sentence

    return run


def test_the_table_covers_every_command():
    assert len([case for case in CASES if not case.marks]) >= 80
    commands = {line.split()[0] for line, _ in LINES}
    assert commands >= {*available()}


@pytest.mark.parametrize(("line", "sentence"), CASES)
def test_a_wrong_line_is_answered_with_what_would_be_right(refused, line, sentence):
    assert sentence in refused(line)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_names_its_extra(refused, name):
    if find_spec(PACKAGES[name]) is not None:
        pytest.skip(f"{name} is installed")
    assert f'python -m pip install "lit-gans[{name}]"' in refused(shlex.join(["train", *TINY, f"logger={name}"]))


def test_a_port_in_use_is_named(refused, monkeypatch):
    two = ["strategy=ddp", "trainer.devices=2"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        assert f"MASTER_PORT={port}: the processes cannot meet there" in refused(shlex.join(["train", *TINY, *two]))
    monkeypatch.setenv("MASTER_PORT", "nowhere")
    assert "MASTER_PORT=nowhere" in refused(shlex.join(["train", *TINY, *two]))


def test_a_traceback_is_printed_on_request(command, monkeypatch):
    monkeypatch.setenv("LIT_GANS_DEBUG", "1")
    code, _, err = command("describe", "model=dcgan", "data.image_size=41")
    assert code == 2
    assert err.startswith("Traceback")
    assert "RefusedInput" in err
    assert err.strip().splitlines()[-1].startswith("lit-gans: data.image_size=41: the dcgan networks")
    monkeypatch.setenv("LIT_GANS_DEBUG", "0")
    assert "Traceback" not in command("describe", "model=dcgan", "data.image_size=41")[2]


def test_a_folder_of_a_refused_run_disappears_with_its_parents(command):
    assert command("train", *TINY, "model.n_critic=0")[0] == 2
    assert not Path("outputs").exists()
    Path("outputs/dcgan_digits/version_7").mkdir(parents=True)
    assert command("train", *TINY, "model.n_critic=0")[0] == 2
    assert [path.name for path in Path("outputs/dcgan_digits").iterdir()] == ["version_7"], "others stay"
