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

_GROUPS_IN_NAME = ("experiment", "model", "data")  # groups whose options are part of the name of the file
_PRECISIONS = {"32-true": "fp32", "bf16-mixed": "bf16", "16-mixed": "fp16"}
_ROUNDS = 2  # number of timings of each setting in a comparison
_TRIALS = 30  # approximate number of timings in the whole search
_MIN_GAIN = 1.03  # minimum factor by which a setting must be faster to be chosen
_MIN_SPEED = 0.95  # minimum speed of the largest batch, as a share of the best speed
_MAX_BATCH = 2**16
_COMPILING = 40.0  # time for compiling in seconds; compiling is tried only if this time is left

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Runs the command with the arguments of a training and of `tune`, and returns the exit code."""
    quiet()
    return refused_is_2(lambda: _tune(*with_defaults(arguments)))


def _tune(arguments: list[str], notices: list[str]) -> int:
    values, rest = without_own(tune, arguments)

    def job(composed: DictConfig) -> None:
        for notice in notices:
            logger.info("%s", notice)
        tune(resolve(composed), list(HydraConfig.get().overrides.task), **values)

    return hydra_command("train", job, experiment_file(rest))


def tune(config: Config, overrides: list[str], minutes: float = 2.0, output: str | None = None) -> Path:
    """Finds the fastest settings by timing short trainings, and writes them as an experiment.

    First finds the largest batch size without a loss of speed. Then compares precisions, memory formats, compilation,
    placements of the data and numbers of threads. Prints every comparison. `lit-gans train experiment=FILE` trains with
    the written file.

    All keys of `lit-gans train` are accepted. The trainings run on a single process, without callbacks, metrics and
    loggers. With several processes, the settings apply to each process.

    Args:
        minutes: total time of all short trainings, in minutes.
        output: file to write, in a folder named `experiment`; null writes `tuned/experiment/tuned_NAME.yaml`.

    Returns:
        The path of the file.
    """
    typed = {item.partition("=")[0].lstrip("+~"): value_of(item) for item in overrides}
    stem = "_".join(typed[group] for group in _GROUPS_IN_NAME if group in typed)
    path = experiment_output(output or f"tuned/experiment/tuned_{stem}.yaml")
    build(config)  # raises an error for invalid values, including the values that the search replaces
    logger.info("short trainings for up to %g min: larger batches first, then one setting after the other", minutes)
    timings: list[Timing] = []

    def measured(config: Config, threads: int, seconds: float) -> float:
        timings.append(speed(config, threads, seconds))
        return timings[-1].images_per_second

    search = Search(config, 60 * minutes, measured)
    search.run()
    for sentence in busy_machine(timings):
        search.say(sentence)
    values = typed | {key: value for key, value in search.found.items() if key != "trainer.precision"}
    if "trainer.precision" in search.found:
        values["precision"] = _PRECISIONS[search.found["trainer.precision"]]
    notes = [f"lit-gans tune {' '.join(overrides)}", *search.lines, f"threads: {search.threads}"]
    write_experiment(path, notes, values)
    threads = f"OMP_NUM_THREADS={search.threads} " if search.threads != torch.get_num_threads() else ""
    print(f"\nwritten: {path}\nnext:    {threads}lit-gans train {quote(f'experiment={path}')}", flush=True)
    return path


class Search:
    """Greedy search for the fastest settings. Compares one setting after the other with the best settings so far.

    The two candidates of a comparison are timed alternately.

    Args:
        config: resolved configuration.
        seconds: total time of the search, in seconds.
        speed: function that returns the images per second of a training. Its arguments are a configuration, the number
            of threads, and the duration of the timing in seconds.

    Attributes:
        lines: printed lines, which describe the results.
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
        self._trial = 0.0  # duration of the last trial, in seconds

    def run(self) -> None:
        """Runs all trials and prints their results."""
        self._batch()
        for key, values in self._candidates().items():
            for value in values:
                self._compare(key, value)
        cores = available_cores()
        for threads in sorted({1, max(1, cores // 2), cores} - {self.threads}):
            self._compare("threads", threads)

    def _candidates(self) -> dict[str, list[Any]]:
        """Returns the values to compare with the current values, by dotted key, in the order of the search."""
        model, data = self.config["model"], self.config["data"]
        cuda = torch.cuda.is_available()
        precision = self.config["trainer"].get("precision") or "32-true"
        wanted = ["32-true", "bf16-mixed", *(["16-mixed"] if cuda else [])]
        candidates: dict[str, list[Any]] = {"trainer.precision": [name for name in wanted if name != precision]}
        for name in ("channels_last", "compile"):
            if name in model:
                candidates[f"model.{name}"] = [not model[name]]
        if "placement" in data:
            placements = ["device", "memory", "disk"] if cuda else ["memory", "disk"]
            candidates["data.placement"] = [name for name in placements if name != data["placement"]]
        return candidates

    def _batch(self) -> None:
        """Doubles the batch size until a batch fails, and chooses the largest one without a loss of speed.

        A batch fails if the memory or the images do not suffice. The trials take at most a third of the time.
        """
        end = time.monotonic() + self.seconds / 3
        speeds: dict[int, float] = {}
        first = size = int(self.config["data"]["batch_size"])
        reason = "not tried, because the time is over"
        # a batch of twice the size is expected to take twice the time
        while not speeds or (size <= _MAX_BATCH and time.monotonic() + 2 * self._trial < end):
            try:
                speeds[size] = self._timed(_with(self.config, "data.batch_size", size), self.threads)
            except (RefusedInput, RuntimeError) as error:
                if not speeds:
                    raise RefusedInput(f"data.batch_size={size} does not work here: {one_line(error)}") from error
                reason = one_line(error)
                break
            size *= 2
        best = max(speeds.values())
        chosen = max(size for size, speed in speeds.items() if speed >= _MIN_SPEED * best)
        tried = ", ".join(f"{size}: {speed:.0f} images/s" for size, speed in speeds.items())
        self._choose("data.batch_size", chosen)
        share = f"{100 * _MIN_SPEED:.0f} % of the best speed"
        self.say(f"batch      {chosen}, the largest with {share} ({tried}); {size}: {reason}")
        if chosen > first:
            more_images = f"the same number now uses {chosen // first} times as many images"
            self.say(f"{'':10} trainer.max_steps counts iterations: {more_images}")

    def _compare(self, key: str, value: Any) -> None:
        """Chooses a value if it is faster than the current value in both of two rounds."""
        label = f"{key.rpartition('.')[2]:10} {value}"
        left = self._end - time.monotonic()
        needed = max(self._limit, 2 * _ROUNDS * self._trial, _COMPILING if key == "model.compile" else 0.0)
        if left < needed:
            self.say(f"{label}: not tried, since it takes {needed:.0f} s and only {max(left, 0):.0f} s are left")
            return
        if key == "threads":
            trial = partial(self._timed, self.config, value)
        else:
            trial = partial(self._timed, _with(self.config, key, value), self.threads)
        ratios = []
        try:
            for _ in range(_ROUNDS):
                current = self._timed(self.config, self.threads)
                ratios.append(trial() / current)
        except (RefusedInput, RuntimeError) as error:
            self.say(f"{label}: does not work here: {one_line(error)}")
            return
        is_chosen = min(ratios) >= _MIN_GAIN
        verdict = "chosen" if is_chosen else "not chosen"
        self.say(f"{label}: {min(ratios):.2f} to {max(ratios):.2f} times as fast, {verdict}")
        if is_chosen and key == "threads":
            self.threads = value
        elif is_chosen:
            self._choose(key, value)

    def _choose(self, key: str, value: Any) -> None:
        self.config, self.found[key] = _with(self.config, key, value), value

    def say(self, line: str) -> None:
        """Prints a line, and keeps it for the comment of the experiment file."""
        self.lines.append(line)
        print(line, flush=True)

    def _timed(self, config: Config, threads: int) -> float:
        """Runs a trial, records its duration, and returns its speed in images per second."""
        start = time.monotonic()
        images_per_second = self._speed(config, threads, self._limit / 4)
        self._trial = time.monotonic() - start
        return images_per_second


def _with(config: Config, key: str, value: Any) -> Config:
    """Returns a configuration with one value changed."""
    changed = deepcopy(config)
    node, _, name = key.partition(".")
    changed[node][name] = value
    return changed
