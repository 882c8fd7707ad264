"""The search of `lit-gans tune`: batch size, precision, memory format, compilation, placement and threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.config.build import build
from lit_gans.data.packed.writer import available_cores
from lit_gans.training.callback import GenerativeCallback

Config = dict[str, Any]

_ROUNDS = 2  # of a comparison
_TRIALS = 30  # of which the time is enough for about as many
_GAIN = 1.03  # a setting must be this much faster to be chosen
_WORTH = 0.95  # share of the best speed that the largest batch must have
LARGEST_BATCH = 2**16
_COMPILING = 40.0  # seconds that compiling may take, and only if as many are left


@dataclass
class Tuning:
    """A search, one setting after the other: each is compared in turns with the best so far.

    Args:
        config: resolved configuration without callbacks.
        seconds: time of all trials together.

    Attributes:
        lines: what was found, and why.
        found: chosen values by dotted key.
        threads: chosen number of threads.
    """

    config: Config
    seconds: float
    lines: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.threads = self.default_threads = torch.get_num_threads()
        self._end = time.monotonic() + self.seconds
        self._limit = self.seconds / _TRIALS
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

    # ---- the search

    def _batch(self) -> None:
        """Doubles the batch until memory, data or a third of the time ends, and keeps the largest without a loss."""
        until = time.monotonic() + self.seconds / 3
        speeds: dict[int, float] = {}
        first = size = int(self.config["data"]["batch_size"])
        reason = "the time for it is over"
        while time.monotonic() + 2 * self._trial < until and size <= LARGEST_BATCH:  # a batch twice as large
            try:
                speeds[size] = self._timed(_with(self.config, "data.batch_size", size))
            except (RefusedInput, RuntimeError) as error:
                if not speeds and isinstance(error, RefusedInput):
                    raise
                reason = one_line(error)
                break
            size *= 2
        if not speeds:
            raise RefusedInput(f"data.batch_size={size} does not fit: {reason}; begin with a smaller one.")
        best = max(speeds.values())
        chosen = max(size for size, speed in speeds.items() if speed >= _WORTH * best)
        tried = ", ".join(f"{size}: {speed:.0f} images/s" for size, speed in speeds.items())
        self._choose("data.batch_size", chosen)
        self._say(
            f"batch      {chosen}, the largest with {100 * _WORTH:.0f} % of the best speed ({tried}); {size}: {reason}"
        )
        if chosen > first:
            self._say(
                f"{'':10} trainer.max_steps counts iterations: as many see {chosen // first} times as many images"
            )

    def _compare(self, key: str, value: Any) -> None:
        """Chooses a value if it is faster than the current one in two rounds."""
        label = f"{key.rpartition('.')[2]:10} {value}"
        left = self._end - time.monotonic()
        needed = max(self._limit, 2 * _ROUNDS * self._trial, _COMPILING if key == "model.compile" else 0.0)
        if left < needed:
            self._say(f"{label}: not tried, which takes {needed:.0f} s, and {max(left, 0):.0f} s are left")
            return
        threads = value if key == "threads" else self.threads
        other = self.config if key == "threads" else _with(self.config, key, value)
        ratios = []
        try:
            for _ in range(_ROUNDS):
                before = self._timed(self.config)
                ratios.append(self._timed(other, threads) / before)
        except (RefusedInput, RuntimeError) as error:
            self._say(f"{label}: does not work here: {one_line(error)}")
            return
        chosen = min(ratios) >= _GAIN
        verdict = "chosen" if chosen else "not chosen"
        self._say(f"{label}: {min(ratios):.2f} to {max(ratios):.2f} times as fast, {verdict}")
        if chosen and key == "threads":
            self.threads = value
        elif chosen:
            self._choose(key, value)

    def _choose(self, key: str, value: Any) -> None:
        self.config, self.found[key] = _with(self.config, key, value), value

    def _say(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)

    def _timed(self, config: Config, threads: int | None = None) -> float:
        """Returns the speed of a trial, and records how long the trial takes."""
        start = time.monotonic()
        speed = self._speed(config, threads)
        self._trial = time.monotonic() - start
        return speed

    def _speed(self, config: Config, threads: int | None = None) -> float:
        """Returns the real images per second of a short training with its data."""
        module, data, trainer = build(_short(config))
        clock = _Clock(self._limit / 4)
        trainer.callbacks.append(clock)  # type: ignore[attr-defined]
        with _threads(threads or self.threads):
            trainer.fit(module, datamodule=data)
        return clock.images_per_second


def _short(config: Config) -> Config:
    switches = ("enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    endless = dict.fromkeys(switches, False) | {"max_steps": 10**9, "max_epochs": -1}
    return config | {"trainer": config["trainer"] | endless, "resume": "none", "init_from": None}


def _with(config: Config, key: str, value: Any) -> Config:
    """Returns a configuration with one value changed."""
    changed = deepcopy(config)
    node, _, name = key.partition(".")
    changed[node][name] = value
    return changed


@contextmanager
def _threads(num: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Clock(GenerativeCallback):
    """Times the steps after the first, until some seconds have passed."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds, self._now = seconds, now
        self._start, self._images, self.images_per_second = 0.0, 0, 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        if trainer.global_step == 1:  # the first step allocates
            self._start = self._now()
            return
        self._images += len(batch["image"])
        if self._now() - self._start >= self.seconds:
            if pl_module.device.type == "cuda":
                torch.cuda.synchronize()
            self.images_per_second = self._images / (self._now() - self._start)
            trainer.should_stop = True
