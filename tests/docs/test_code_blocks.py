"""Every code block of the README and of the site is run, composed or read, in the order of its page, in one folder.

What a comment above a block may ask for is written in `tests/docs/blocks.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import io
import itertools
import json
import os
import runpy
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from lit_gans import build
from lit_gans.cli import main as cli
from lit_gans.config import registry
from lit_gans.metrics.protocol import Protocol
from tests.docs.blocks import LANGUAGES, PAGES, ROOT, blocks, commands
from tests.docs.conftest import SMALL_METRICS, TINY

PATHS = ("checkpoint", "resume", "init_from", "data.root", "fake", "real", "input")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WITH_BLOCKS = [path for path in PAGES if blocks(path)]


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_of_a_page(path, documented, monkeypatch):
    for block in blocks(path):
        assert block.language in LANGUAGES, f"{block.place}: say the language, one of {LANGUAGES}"
        if block.skipped:
            assert len(block.test) > len("skip, "), f"{block.place}: say why the block is skipped"
            continue
        try:
            with monkeypatch.context() as patch:
                CHECKS[block.language](block, documented, patch)
        except BaseException as error:
            error.add_note(f"in the {block.language} block of {block.place}:\n{block.code}")
            raise


# ---- files


def write(block, folder):
    """Writes the file that a block is, and returns whether it is one."""
    if block.file is None:
        return False
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code)
    return True


def check_python(block, folder, patch):
    if write(block, folder):
        return runpy.run_path(str(folder / block.file))
    exec(compile(block.replaced(), block.place, "exec"), {"__name__": "__main__"})


def check_yaml(block, folder, patch):
    assert isinstance(yaml.safe_load(block.code), dict)
    write(block, folder)


def check_toml(block, folder, patch):
    tomllib.loads(block.code)


def check_text(block, folder, patch):
    assert "lit-gans train" not in block.code or block.code.startswith("lit-gans:"), "commands belong in bash blocks"


# ---- commands


def check_bash(block, folder, patch):
    for words in commands(block):
        steps = [list(group) for last, group in itertools.groupby(words, lambda word: word == "&&") if not last]
        for step in steps:
            check_command(step, block.overrides, patch)


def check_command(words, overrides, patch):
    """Checks one command: its environment, then what it is."""
    while "=" in words[0]:
        patch.setenv(*words[0].split("=", 1))
        words = words[1:]
    if words[0] == "torchrun":
        words = words[words.index("lit-gans") :]
    forget()
    try:
        KINDS[words[0]](words[1:], overrides, patch)
    finally:
        patch.delenv("LIT_GANS_IMPORT", raising=False)
        forget()


def forget():
    """Lets the registry look again: `LIT_GANS_IMPORT` is another for each command."""
    for found in vars(registry).values():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


def check_lit_gans(words, overrides, patch):
    name, rest = words[0], words[1:]
    for key, _, value in (word.partition("=") for word in rest):
        if key in PATHS and value not in ("auto", "none"):
            assert Path(value).exists(), f"{key}={value} does not exist"
    if name == "train" and overrides is not None:
        tiny = [*TINY, *SMALL_METRICS] if "metrics=none" not in overrides else TINY
        given = [word.partition("=")[0] for word in (*rest, *overrides)]
        tiny = [word for word in tiny if word.partition("=")[0] not in given and not own_networks(word, rest)]
        assert run("train", *rest, *tiny, *overrides)[0] == 0
    elif name == "train":
        for single in each_of_a_sweep([word for word in rest if word not in ("-m", "--cfg", "job")]):
            composed(single, os.environ.get("LIT_GANS_IMPORT"))
    elif overrides is not None:
        assert run(*words)[0] == 0
    elif name == "fit":
        assert run(*words, "--print_config")[0] == 0
    elif name == "compare":
        for path in rest:
            write_evaluation(path)
        code, printed = run(*words)
        assert code == 0
        assert all(path in printed for path in (*rest, "metric/fid_digits"))
    elif name in ("--version", "--help"):
        assert run(name)[0] == 0
    else:
        num = 2 if name == "bench" else 1
        assert run(*words[:num], "--cfg", "job", *words[num:])[0] == 0


def write_evaluation(path):
    """Writes a file as `lit-gans evaluate` does, with an empty protocol."""
    protocol = {field.name: None for field in dataclasses.fields(Protocol)} | {"versions": {}}
    record = {"metric/fid_digits": float(len(path)), "directions": {"metric/fid_digits": "min"}, "protocol": protocol}
    Path(path).write_text(json.dumps(record))


def own_networks(word, rest):
    """Returns whether a GAN of the page has no such argument: it brings networks of its own."""
    return "width" in word and "model=tiny_gan" in rest


def each_of_a_sweep(overrides):
    """Yields the overrides of each run of a sweep."""
    choices = []
    for word in overrides:
        key, _, value = word.partition("=")
        several = "," in value and not value.startswith("[") and not key.startswith("hydra.")
        choices.append([f"{key}={one}" for one in value.split(",")] if several else [word])
    yield from itertools.product(*choices)


@functools.cache  # several pages show the same command
def composed(overrides, modules):
    """Composes a training as the command does, and constructs module, data and trainer, without training."""
    folder = "trainer.default_root_dir=composed"  # Hydra chooses it when a job begins
    code, printed = run("train", "--cfg", "job", "--resolve", folder, *overrides)
    assert code == 0
    config = yaml.safe_load(printed)
    if config["resume"] == "none" and not NOT_HERE & set(overrides):
        build(config)


NOT_HERE = {"precision=fp16"}


def run(*words):
    """Runs `lit-gans` in this process; returns the exit code and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            code = cli.run([*words])
        except SystemExit as stopped:  # the Lightning CLI
            code = stopped.code or 0
    return code, printed.getvalue()


def check_python_command(words, overrides, patch):
    assert words[0] == "-m" or (ROOT / words[0]).is_file()
    if words[:3] == ["-m", "pip", "install"]:
        extras = words[-1].partition("[")[2].rstrip("]")
        assert set(filter(None, extras.split(","))) <= set(PYPROJECT["project"]["optional-dependencies"])
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None


def check_pytest(words, overrides, patch):
    markers = [marker.partition(":")[0] for marker in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    for flag, word in itertools.pairwise(["", *words]):
        if flag == "-m":
            assert word in markers
        elif "/" in word:
            assert (ROOT / word.partition("::")[0]).exists()


def check_tool(name, words, overrides, patch):
    assert name == "cd" or shutil.which(name) or any(name in need for need in needs()), f"no extra brings {name}"


def needs():
    return itertools.chain.from_iterable(PYPROJECT["project"]["optional-dependencies"].values())


TOOLS = {name: functools.partial(check_tool, name) for name in ("ruff", "mypy", "pre-commit", "mkdocs", "git", "cd")}
KINDS = {"lit-gans": check_lit_gans, "python": check_python_command, "pytest": check_pytest, **TOOLS}
CHECKS = {
    "python": check_python,
    "bash": check_bash,
    "yaml": check_yaml,
    "toml": check_toml,
    "text": check_text,
}
