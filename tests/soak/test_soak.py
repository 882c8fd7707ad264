"""Trainings that are killed, stopped and damaged at random end bitwise as uninterrupted ones: `resume=auto` goes on.

`SOAK=100 pytest -m slow tests/soak` tries a hundred of them; the number of one is its seed. One takes at most 20
minutes, two as a rule. Needs Linux.
"""

import importlib.util
import os
import random
import re
import signal
import sys
import time

import pytest

from lit_gans.config.registry import gans
from tests.soak.runs import (
    SAVED_EVERY,
    STEPS,
    Training,
    overrides,
    results,
    resumes_at,
    rows,
    same,
    write_pictures,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="limits the sizes of files, and reads /proc"),
]
NUM = int(os.environ.get("SOAK", "4"))
STRATEGIES = ["auto", "ddp", "fsdp", *["deepspeed"] * (importlib.util.find_spec("deepspeed") is not None)]
FILES = ("checkpoints/last.ckpt", "../cache/*.packed", "../cache/references/*.safetensors", "metrics.csv")
FAULTS = ["SIGKILL", "SIGKILL of one process", "SIGTERM", "SIGINT", "full disk", *(f"damage {name}" for name in FILES)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    return folder


@pytest.fixture(scope="module")
def reference(tmp_path_factory, pictures):
    """Trains a setting without interruption the first time; returns its results and rows."""
    found = {}

    def make(*setting):
        if setting not in found:
            folder = tmp_path_factory.mktemp("reference")
            training = Training(folder, overrides(*setting, pictures))
            assert training.end() == 0, training.output
            assert training.iterations == list(range(1, STEPS + 1))
            found[setting] = results(folder / "run"), rows(folder / "run")
        return found[setting]

    return make


def damage(path, draw):
    """Truncates a file, zeroes a block of it or flips a bit."""
    content = bytearray(path.read_bytes())
    start, how = draw.randrange(len(content)), draw.choice(("truncated", "zeroed", "flipped"))
    if how == "truncated":
        del content[start:]
    elif how == "zeroed":
        content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    else:  # no character of metrics.csv has the high bit: a flipped digit would be another number
        content[start] ^= 128 if path.suffix == ".csv" else 1 << draw.randrange(8)
    path.write_bytes(content)  # in place: all names of the file have the damage


def happen(fault, training, draw, begins, run):
    """Does something to a training; returns whether it was asked to stop, and the damaged name."""
    if fault == "full disk":
        if code := training.end():
            assert code in (1, 2), training.output
            assert "Traceback (most recent call last)" not in training.output
            assert re.search(r"^lit-gans: .*cannot be written", training.output, re.MULTILINE)
        return False, None
    training.wait_for(draw.randint(min(begins + 1, STEPS), STEPS))
    time.sleep(draw.uniform(0, 0.05))
    if fault in ("SIGTERM", "SIGINT"):
        number = getattr(signal, fault)
        for process in training.alive() if fault == "SIGINT" else training.alive()[:1]:  # of a terminal: all receive it
            process.send_signal(number)
        assert training.end() in (128 + number, *([0, -number] if STEPS in (begins, *training.iterations) else []))
        return True, None
    if fault == "SIGKILL of one process":
        if alive := training.alive():
            draw.choice(alive).kill()
        code = training.end()
        assert code != 0 or STEPS in (begins, *training.iterations), "a rank was killed, and the exit code is 0"
        return False, None
    training.kill()
    found = sorted(run.glob(fault.removeprefix("damage "))) if fault.startswith("damage") else []
    inside = [each for path in found for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file()]
    inside = [each for each in inside if each.stat().st_size]
    if not inside:
        return False, None
    damage(draw.choice(sorted(inside)), draw)
    return False, found[0].name


@pytest.mark.parametrize("number", range(NUM))
def test_nothing_is_lost(number, tmp_path, pictures, reference):
    draw = random.Random(number)
    strategy = draw.choice(STRATEGIES)
    setting = (draw.choice(sorted(gans())), strategy, strategy in ("fsdp", "deepspeed") and draw.random() < 0.5)
    faults = draw.choices(FAULTS, k=draw.randint(1, 4))
    expected, expected_rows = reference(*setting)
    run, at_least, stops, damaged = tmp_path / "run", 0, [], set()
    print(number, setting, faults)
    for fault in [*faults, None]:
        begins = resumes_at(run)
        if begins is None:  # all checkpoints are damaged
            refused = Training(tmp_path, [*overrides(*setting, pictures), "resume=auto"])
            assert refused.end() == 2, refused.output
            assert "resume=none starts a new run" in refused.output
        assert (begins or 0) >= at_least, f"the checkpoint of iteration {at_least} was written"
        arguments = [*overrides(*setting, pictures), f"resume={'none' if begins is None else 'auto'}"]
        limit = draw.choice((draw.randint(200, 5_000), draw.randint(5_000, 100_000))) if fault == "full disk" else None
        training = Training(tmp_path, arguments, limit)
        begins = begins or 0
        try:
            stopped, name = happen(fault, training, draw, begins, run) if fault else (False, None)
            code = training.end()
        finally:
            training.kill()
        trained = training.iterations
        assert trained == list(range(begins + 1, begins + 1 + len(trained))), "an iteration is skipped or repeated"
        reached = max([begins, *trained])
        at_least = reached if stopped else max(begins, (reached - 1) // SAVED_EVERY * SAVED_EVERY)
        stops += [reached] * stopped
        if name is not None:
            damaged.add(name)
            at_least = max(at_least - SAVED_EVERY, 0) if name == "last.ckpt" else at_least
            at_least = 0 if name == "last.ckpt" and resumes_at(run) is None else at_least
    assert code == 0, training.output
    compare(results(run), dict(expected), stops)
    ours = rows(run)
    if "metrics.csv" in damaged:  # rows that lost bytes are named and left out
        assert all(row.items() <= expected_rows[step].items() for step, row in ours.items())
    else:
        assert ours == expected_rows
    left = [
        path.name
        for path in tmp_path.rglob("*")
        if path.name.endswith((".part", ".lit_gans_part", ".lit_gans_old", ".journal"))
    ]
    assert not left, "temporary files are left behind"


def compare(ours, theirs, stops):
    """Compares results, without the grids that a training writes when it is asked to stop."""
    for step in stops:
        if f"{step:06d}.png" not in theirs:
            ours.pop(f"{step:06d}.png", None)
    assert ours.keys() == theirs.keys()
    assert not [name for name, value in theirs.items() if not same(ours[name], value)]
