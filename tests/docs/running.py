"""Runs the commands of a shell block in a tiny form: few steps, small networks, one process where one is enough."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys

from benchmarks.__main__ import main as benchmark
from lit_gans.cli import main as cli
from lit_gans.config import registry

WIDTHS = ["model.generator_width=2", "model.discriminator_width=2"]
TINY = ["trainer.max_steps=2", "trainer.accelerator=cpu", "trainer.log_every_n_steps=1", "callbacks.samples.num=4"]
SMALL_METRICS = ["metrics.num_samples=40", "metrics.batch_size=40"]
_FEWER = ["metrics.num_samples=8", "metrics.batch_size=8"]  # the extractor for photographs is large
_TINY_FIT = ["--trainer.max_steps=2", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
_LAUNCHERS = {"torchrun": ["-m", "torch.distributed.run"], "lit-gans": ["-m", "lit_gans"]}


def run_command(words, overrides, folder, patch):
    """Runs `lit-gans` or `torchrun`, after variables of the environment."""
    while "=" in words[0]:
        patch.setenv(*words[0].split("=", 1))
        words = words[1:]
    if words[:3] == ["python", "-m", "benchmarks"]:
        with contextlib.redirect_stdout(io.StringIO()):
            return benchmark([*words[3:], "--preset=smoke"])
    assert words[0] in _LAUNCHERS, f"{words[0]} cannot run in a test: say so, <!-- test: check, REASON -->"
    words = [*words, *tiny(words[words.index("lit-gans") + 1 :], overrides)]
    if several_processes(words):
        return run_processes(words, folder)
    forget_modules()
    try:
        code, _, errors = run(*words[1:])
    finally:
        patch.delenv("LIT_GANS_IMPORT", raising=False)
        forget_modules()
    assert code == 0, errors


def tiny(words, overrides):
    """Returns what makes a command tiny, to be appended to it: the last value of a key counts."""
    if words[0] == "bench":
        return ["width=4", "image_size=16", "batch_sizes=[2]", "seconds=0.01"]
    if words[0] == "fit" and "-c" not in words:  # with -c a run is repeated, which was tiny
        return [*_TINY_FIT, "--model.generator_width=2", "--model.discriminator_width=2"]
    if words[0] != "train":
        return []
    widths = [] if "model=tiny_gan" in words else WIDTHS  # a GAN of the pages with networks of its own
    metrics = _FEWER if "data=folder" in words else SMALL_METRICS
    metrics = [] if "metrics=none" in (*words, *overrides) else metrics
    return [*TINY, *widths, *metrics, *overrides]


def several_processes(words):
    """Returns whether a command starts all its processes: `lit-gans train` is itself one of those that train."""
    return words[0] == "torchrun" or (words[1] == "fit" and any("devices" in word for word in words))


def run_processes(words, folder):
    """Runs a command in processes of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, *_LAUNCHERS[words[0]], *words[1:]]
    if words[0] == "torchrun":  # the console script beside this Python
        command[command.index("lit-gans")] = os.path.join(os.path.dirname(sys.executable), "lit-gans")
    subprocess.run(command, cwd=folder, env=environment, check=True)


def run(*words):
    """Runs `lit-gans` in this process; returns the exit code, what it printed, and its errors."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            code = cli.run([*words])
        except SystemExit as stopped:  # the Lightning CLI
            code = stopped.code or 0
    return code, printed.getvalue(), errors.getvalue()


def forget_modules():
    """Lets the registry look again: `LIT_GANS_IMPORT` is another for each command."""
    for found in vars(registry).values():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()
