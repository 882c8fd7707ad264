"""Checks commands that are not run as far as possible: they compose, their files and extras exist."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import os
import shutil
import tomllib

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from benchmarks.__main__ import main as benchmark
from lit_gans import build
from tests.docs.blocks import ROOT
from tests.docs.running import forget_modules, run

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_FLAGS = ("-m", "--cfg", "job")


def check_command(words, patch):
    """Checks one command: its environment, then what it is."""
    while "=" in words[0]:
        patch.setenv(*words[0].split("=", 1))
        words = words[1:]
    if words[0] in ("torchrun", "deepspeed", "taskset"):
        words = words[words.index(next(word for word in ("python", "lit-gans", "-m") if word in words)) :]
        words = ["python", *words] if words[0] == "-m" else words
    forget_modules()
    try:
        _KINDS[words[0]](words[1:])
    finally:
        patch.delenv("LIT_GANS_IMPORT", raising=False)
        forget_modules()


def check_lit_gans(words):
    name, rest = words[0], words[1:]
    if name in ("train", "plan"):
        rest = [word for word in rest if not word.startswith("minutes=") and not word.endswith(".yaml")]  # theirs
        for single in each_of_a_sweep([word for word in rest if word not in _FLAGS]):
            composed(single, os.environ.get("LIT_GANS_IMPORT"))
    elif name == "fit":
        assert run(*words, "--print_config")[0] == 0
    else:
        assert run(name, "--cfg", "job", *rest)[0] == 0


def each_of_a_sweep(overrides):
    """Yields the overrides of each run of a sweep; of an interval, which a search draws from, its first value."""
    parser = OverridesParser.create()
    choices = []
    for word in overrides:
        override = parser.parse_override(word)
        if override.is_interval_sweep():
            choices.append([f"{override.key_or_group}={override.value().start}"])
        elif override.is_choice_sweep():
            choices.append([f"{override.key_or_group}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([word])
    yield from itertools.product(*choices)


@functools.cache  # several pages show the same command
def composed(overrides, modules):
    """Composes a training as the command does, and constructs module, data and trainer, without training."""
    folder = "trainer.default_root_dir=composed"  # Hydra chooses it when a job begins
    code, printed, errors = run("train", "--cfg", "job", "--resolve", folder, *overrides)
    assert code == 0, errors
    build(yaml.safe_load(printed))


def check_python(words):
    assert words[0] == "-m" or (ROOT / words[0]).is_file()
    if words[:3] == ["-m", "pip", "install"]:
        extras = words[-1].partition("[")[2].partition("]")[0]
        assert set(filter(None, extras.split(","))) <= set(PYPROJECT["project"]["optional-dependencies"])
    elif words[:2] == ["-m", "benchmarks"]:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            benchmark([*words[2:], "--print_config"])
            raise AssertionError("the options are not printed")
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None


def check_pytest(words):
    markers = [marker.partition(":")[0] for marker in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    for flag, word in itertools.pairwise(["", *words]):
        if flag == "-m":
            assert word in markers
        elif "/" in word:
            assert (ROOT / word.partition("::")[0]).exists()


def check_tool(name, words):
    needs = itertools.chain.from_iterable(PYPROJECT["project"]["optional-dependencies"].values())
    assert name == "cd" or shutil.which(name) or any(name in need for need in needs), f"no extra brings {name}"


_NAMES = ("ruff", "mypy", "pre-commit", "mkdocs", "mike", "git", "cd")
_TOOLS = {name: functools.partial(check_tool, name) for name in _NAMES}
_KINDS = {"lit-gans": check_lit_gans, "python": check_python, "pytest": check_pytest, **_TOOLS}
