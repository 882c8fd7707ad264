"""`lit-gans bench soak`: trainings that are killed, damaged and resumed at random, compared with uninterrupted ones.

A training of 16 iterations, with a checkpoint every 2 and a measurement every 4, is interrupted at random moments from
its start to its end; meanwhile, its newest checkpoint, packed file, cached statistics or `metrics.csv` may be damaged.
After each fault, the good checkpoint before it must be used, nothing after it may be skipped or repeated, damage must
be named, no process may go on, and no temporary file remain.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table

from lit_gans.benchmark.measure import environment
from lit_gans.benchmark.report import report, table_of
from lit_gans.benchmark.soak_faults import FAULTS
from lit_gans.benchmark.soak_results import results, rows
from lit_gans.benchmark.soak_run import SoakRun
from lit_gans.benchmark.soak_training import STEPS, Lost, Setting, Training, write_pictures
from lit_gans.common.errors import RefusedInput, refuse_below, refuse_not_positive
from lit_gans.config.registry import gans as registered

_STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed")
_SHARDING = ("fsdp", "deepspeed")
_MOST_FAULTS = 4  # of one training
_SECONDS = 60


def soak(
    minutes: float = 30.0,
    seed: int = 0,
    first: int = 0,
    runs: int | None = None,
    gans: list[str] | None = None,
    strategies: list[str] | None = None,
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
) -> dict[str, Any]:
    """Starts tiny trainings with `lit-gans train resume=auto`, and does to them what a cluster does, at random.

    A training is killed, stopped, damaged or runs out of disk space up to four times, and must end bitwise as an
    uninterrupted one. Needs Linux.

    Args:
        minutes: time after which no training starts.
        seed: seed of the trainings and their faults; moments depend on the speed of the machine too.
        first: number of the first training, to repeat one.
        runs: number of trainings after which it stops earlier; null has no limit.
        gans: names of the GANs; null uses all.
        strategies: `auto` (one process), `ddp`, `fsdp` and `deepspeed` (two); null uses all that are installed.
        preset: `smoke` trains once.
        output: optional JSON file to write.

    Returns:
        `faults`: how often each happened and was survived, and the most iterations that were trained again after it;
        `lost`: what was lost, with seed and number of the training.

    Raises:
        RefusedInput: a value is out of range.
        SystemExit: something was lost.
    """
    refuse_not_positive(minutes=minutes)
    names = _known("gans", gans, sorted(registered()))
    installed = [name for name in _STRATEGIES if name != "deepspeed" or importlib.util.find_spec("deepspeed")]
    chosen = _known("strategies", strategies, installed)
    refuse_below(0, first=first)
    refuse_below(1, runs=runs)
    if sys.platform != "linux":
        raise RefusedInput("bench soak needs Linux: it reads /proc and limits the sizes of files.")
    run = _Soak(Path(tempfile.mkdtemp(prefix="lit_gans_soak_")), seed, names, chosen)
    taken, done = run.train_for(minutes, first, 1 if preset == "smoke" else runs)
    result = {"benchmark": "soak", "seed": seed, "minutes": taken, "first": first, "runs": done}
    result |= {**environment(torch.device("cpu")), **run.found()}
    report(result, [_table(result)], [_summary(result)], output)
    if run.lost:
        raise SystemExit(f"lit-gans: {len(run.lost)} trainings lost something, see above and {run.folder}.")
    shutil.rmtree(run.folder)
    return result


def _known(key: str, given: list[str] | None, names: list[str]) -> list[str]:
    unknown = [name for name in given or [] if name not in names]
    if unknown or given == []:
        raise RefusedInput(f"{key}={given}: there are {', '.join(names)}.")
    return given or names


class _Soak:
    """Trainings one after the other, and what happened to them."""

    def __init__(self, folder: Path, seed: int, gans: list[str], strategies: list[str]) -> None:
        self.folder, self.seed, self.gans, self.strategies = folder, seed, gans, strategies
        self.settings: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.survived: Counter[str] = Counter()
        self.repeated: dict[str, int] = {}
        self.lost: list[dict[str, Any]] = []
        self._references: dict[Setting, dict[str, Any]] = {}
        write_pictures(folder / "pictures")

    def train_for(self, minutes: float, first: int, runs: int | None) -> tuple[float, int]:
        """Trains until the time is up, or for a number of trainings; returns the minutes and the number."""
        start, number = time.monotonic(), first
        while time.monotonic() - start < minutes * _SECONDS and (runs is None or number < first + runs):
            self.train(number)
            number += 1
        return (time.monotonic() - start) / _SECONDS, number - first

    def train(self, number: int) -> None:
        """Draws a training and its faults from the seed and its number, and compares it with the reference."""
        draw = random.Random(f"{self.seed} {number}")
        strategy = draw.choice(self.strategies)
        setting = Setting(draw.choice(self.gans), strategy, strategy in _SHARDING and draw.random() < 0.5)
        faults = draw.choices(list(FAULTS), k=draw.randint(1, _MOST_FAULTS))
        self.settings[str(setting)] += 1
        folder = self.folder / str(number)
        run = SoakRun(setting, folder, self.folder / "pictures", faults, draw)
        problem = None
        try:
            run.train(self._reference(setting))
        except Lost as error:
            problem = str(error)
        for each in run.survived:
            self.times[each.fault] += 1
            self.repeated[each.fault] = max(self.repeated.get(each.fault, 0), each.repeated)
        if problem is None:
            self.survived.update(each.fault for each in run.survived)
        else:
            repeat = f"lit-gans bench soak seed={self.seed} first={number} runs=1"
            about = {"setting": str(setting), "faults": [each.fault for each in run.survived], "repeat": repeat}
            self.lost.append({**about, "lost": problem, "folder": str(folder)})
            self.survived.update(each.fault for each in run.survived[:-1])
        happened = ", ".join(f"{each.fault} (-{each.repeated})" for each in run.survived)
        print(f"{number}: {setting}: {happened}: {problem or 'nothing lost'}", flush=True)

    def _reference(self, setting: Setting) -> dict[str, Any]:
        """Returns the results of an uninterrupted training, which is trained once."""
        if setting not in self._references:
            folder = self.folder / f"reference {setting}".replace(" ", "_")
            folder.mkdir()
            training = Training(folder, setting.overrides(self.folder / "pictures"))
            if training.end() or training.iterations != list(range(1, STEPS + 1)):
                raise RuntimeError(f"{setting} does not train: {training.output}")
            self._references[setting] = {"results": results(folder / "run"), "rows": rows(folder / "run")}
        return self._references[setting]

    def found(self) -> dict[str, Any]:
        """Returns what happened, for the report."""
        faults = {
            name: {"times": self.times[name], "survived": self.survived[name], "most_repeated": self.repeated[name]}
            for name in FAULTS
            if self.times[name]
        }
        return {"settings": dict(sorted(self.settings.items())), "faults": faults, "lost": self.lost}


def _table(result: dict[str, Any]) -> Table:
    title = f"soak, {result['runs']} trainings in {result['minutes']:.0f} minutes, seed {result['seed']}"
    table = table_of(title, "fault", "times", "survived", "iterations repeated, at most")
    for name, found in result["faults"].items():
        table.add_row(name, str(found["times"]), str(found["survived"]), str(found["most_repeated"]))
    return table


def _summary(result: dict[str, Any]) -> str:
    lines = [f"{each['repeat']}: {each['setting']}: {each['lost']} ({each['folder']})" for each in result["lost"]]
    return "\n".join(lines) or "lost: nothing"
