"""`lit-gans tune model=NAME data=NAME [minutes=2]`: finds the fastest settings on this machine.

Examples:
    lit-gans tune
    lit-gans tune model=sngan data=cifar10 minutes=5
    lit-gans tune experiment=dcgan_digits output=mine/experiment/fast.yaml
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lit_gans.cli.timing import Timing, busy_machine, speed
from lit_gans.cli.train_arguments import (
    experiment_file,
    experiment_output,
    with_defaults,
    without_own,
    write_experiment,
)
from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.common.quiet import quiet
from lit_gans.config.build import build, resolve
from lit_gans.config.hydra_app import hydra_command
from lit_gans.config.mistakes import refused_is_2
from lit_gans.config.overrides import value_of
from lit_gans.data.packed.writer import available_cores

Config = dict[str, Any]

_NAMED = ("experiment", "model", "data")  # groups in the name of the file
_PRECISIONS = {"32-true": "fp32", "bf16-mixed": "bf16", "16-mixed": "fp16"}
_ROUNDS = 2  # of a comparison
_TRIALS = 30  # that fit in the given time, approximately
_GAIN = 1.03  # a setting must be this much faster to be chosen
_WORTH = 0.95  # share of the best speed that the largest batch must have
_LARGEST_BATCH = 2**16
_COMPILING = 40.0  # seconds that compiling may take, and only if as many are left

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Runs the command with the arguments of a training, and of `tune`; returns the exit code."""
    quiet()
    return refused_is_2(lambda: _tune(*with_defaults(arguments)))


def _tune(arguments: list[str], notices: list[str]) -> int:
    own, rest = without_own(tune, arguments)

    def job(composed: DictConfig) -> None:
        for notice in notices:
            logger.info("%s", notice)
        tune(resolve(composed), list(HydraConfig.get().overrides.task), **own)

    return hydra_command("train", job, experiment_file(rest))


def tune(config: Config, overrides: list[str], minutes: float = 2.0, output: str | None = None) -> Path:
    """Finds the largest batch without a loss of speed, then the fastest precision, memory format, compilation,
    placement of the data and number of threads, by short trainings in turns.

    Prints why each is chosen or not, and writes an experiment file that `lit-gans train experiment=FILE` takes. All
    keys of `lit-gans train` are accepted. One process trains, without callbacks, metrics and loggers; what is found
    holds for each of several processes.

    Args:
        minutes: time of all trials together.
        output: file to write, in a folder named `experiment`; null writes `tuned/experiment/tuned_NAME.yaml`.

    Returns:
        The path of the file.
    """
    given = {item.partition("=")[0].lstrip("+~"): value_of(item) for item in overrides}
    stem = "_".join(given[group] for group in _NAMED if group in given)
    path = experiment_output(output or f"tuned/experiment/tuned_{stem}.yaml")
    build(config)  # refuses values that the trials replace, too
    logger.info("short trainings for up to %g min: larger batches first, then one setting after the other", minutes)
    timings: list[Timing] = []

    def measured(config: Config, threads: int, seconds: float) -> float:
        timings.append(speed(config, threads, seconds))
        return timings[-1].images_per_second

    search = Search(config, 60 * minutes, measured)
    search.run()
    for sentence in busy_machine(timings):
        search.say(sentence)
    values = given | {key: value for key, value in search.found.items() if key != "trainer.precision"}
    if "trainer.precision" in search.found:
        values["precision"] = _PRECISIONS[search.found["trainer.precision"]]
    notes = [f"lit-gans tune {' '.join(overrides)}", *search.lines, f"threads: {search.threads}"]
    write_experiment(path, notes, values)
    threads = f"OMP_NUM_THREADS={search.threads} " if search.threads != torch.get_num_threads() else ""
    print(f"\nwritten: {path}\nnext:    {threads}lit-gans train {quote(f'experiment={path}')}", flush=True)
    return path


class Search:
    """A search, one setting after the other: each is compared in turns with the best so far.

    Args:
        config: resolved configuration.
        seconds: time of all trials together.
        speed: returns the images per second of a configuration, a number of threads and seconds to measure.

    Attributes:
        lines: what was found, and why.
        found: chosen values by dotted key.
        threads: chosen number of threads.
    """

    def __init__(self, config: Config, seconds: float, speed: Callable[[Config, int, float], float]) -> None:
        self.config, self.seconds, self._speed = config, seconds, speed
        self.lines: list[str] = []
        self.found: dict[str, Any] = {}
        self.threads = torch.get_num_threads()
        self._end = time.monotonic() + seconds
        self._limit = seconds / _TRIALS
        self._trial = 0.0  # seconds of the last one

    def run(self) -> None:
        """Runs all trials and prints what they found."""
        self._batch()
        for key, values in self._candidates().items():
            for value in values:
                self._compare(key, value)
        cores = available_cores()
        for threads in sorted({1, max(1, cores // 2), cores} - {self.threads}):
            self._compare("threads", threads)

    def _candidates(self) -> dict[str, list[Any]]:
        """Returns values to compare with the current ones, by dotted key, in the order of the search."""
        model, data = self.config["model"], self.config["data"]
        cuda = torch.cuda.is_available()
        precision = self.config["trainer"].get("precision") or "32-true"
        wanted = ["32-true", "bf16-mixed", *(["16-mixed"] if cuda else [])]
        candidates: dict[str, list[Any]] = {"trainer.precision": [name for name in wanted if name != precision]}
        for name in ("channels_last", "compile"):
            if name in model:
                candidates[f"model.{name}"] = [not model[name]]
        if "placement" in data:
            places = ["device", "memory", "disk"] if cuda else ["memory", "disk"]
            candidates["data.placement"] = [place for place in places if place != data["placement"]]
        return candidates

    def _batch(self) -> None:
        """Doubles the batch until memory, data or a third of the time ends, and keeps the largest without a loss."""
        until = time.monotonic() + self.seconds / 3
        speeds: dict[int, float] = {}
        first = size = int(self.config["data"]["batch_size"])
        reason = "the time for it is over"
        # a batch twice as large takes twice the time
        while not speeds or (size <= _LARGEST_BATCH and time.monotonic() + 2 * self._trial < until):
            try:
                speeds[size] = self._timed(_with(self.config, "data.batch_size", size), self.threads)
            except (RefusedInput, RuntimeError) as error:
                if not speeds:
                    raise RefusedInput(f"data.batch_size={size} does not work here: {one_line(error)}") from error
                reason = one_line(error)
                break
            size *= 2
        best = max(speeds.values())
        chosen = max(size for size, speed in speeds.items() if speed >= _WORTH * best)
        tried = ", ".join(f"{size}: {speed:.0f} images/s" for size, speed in speeds.items())
        self._choose("data.batch_size", chosen)
        share = f"{100 * _WORTH:.0f} % of the best speed"
        self.say(f"batch      {chosen}, the largest with {share} ({tried}); {size}: {reason}")
        if chosen > first:
            times = chosen // first
            self.say(f"{'':10} trainer.max_steps counts iterations: as many see {times} times as many images")

    def _compare(self, key: str, value: Any) -> None:
        """Chooses a value if it is faster than the current one in two rounds."""
        label = f"{key.rpartition('.')[2]:10} {value}"
        left = self._end - time.monotonic()
        needed = max(self._limit, 2 * _ROUNDS * self._trial, _COMPILING if key == "model.compile" else 0.0)
        if left < needed:
            self.say(f"{label}: not tried, which takes {needed:.0f} s, and {max(left, 0):.0f} s are left")
            return
        if key == "threads":
            trial = partial(self._timed, self.config, value)
        else:
            trial = partial(self._timed, _with(self.config, key, value), self.threads)
        ratios = []
        try:
            for _ in range(_ROUNDS):
                before = self._timed(self.config, self.threads)
                ratios.append(trial() / before)
        except (RefusedInput, RuntimeError) as error:
            self.say(f"{label}: does not work here: {one_line(error)}")
            return
        chosen = min(ratios) >= _GAIN
        verdict = "chosen" if chosen else "not chosen"
        self.say(f"{label}: {min(ratios):.2f} to {max(ratios):.2f} times as fast, {verdict}")
        if chosen and key == "threads":
            self.threads = value
        elif chosen:
            self._choose(key, value)

    def _choose(self, key: str, value: Any) -> None:
        self.config, self.found[key] = _with(self.config, key, value), value

    def say(self, line: str) -> None:
        """Prints a line that the file keeps."""
        self.lines.append(line)
        print(line, flush=True)

    def _timed(self, config: Config, threads: int) -> float:
        """Returns the speed of a trial, and records how long the trial takes."""
        start = time.monotonic()
        found = self._speed(config, threads, self._limit / 4)
        self._trial = time.monotonic() - start
        return found


def _with(config: Config, key: str, value: Any) -> Config:
    """Returns a configuration with one value changed."""
    changed = deepcopy(config)
    node, _, name = key.partition(".")
    changed[node][name] = value
    return changed
