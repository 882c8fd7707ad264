"""Base class of callbacks that measure generated images."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from lightning.pytorch import Trainer
from torch import Tensor

from lit_gans.callbacks.throughput import paused
from lit_gans.common.atomic import replacing, writing
from lit_gans.common.errors import refuse_above, refuse_below
from lit_gans.metrics.protocol import RUNNING_STATISTICS, versions
from lit_gans.training.attached import callbacks_of, data_of
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.generative import GenerativeModule

PROTOCOL = "protocol.json"
_MOST_BYTES = 2**20  # of that file
_MOST_SAMPLES = 1_000_000  # of one measurement

logger = logging.getLogger(__name__)


class Measurement(GenerativeCallback):
    """Measures the sampling generator at iteration 0, every `every_n_steps` iterations and at the last iteration.

    The values are logged, stored in checkpoints, and can select the best checkpoint. Their protocol is stored in
    checkpoints and in `protocol.json` in the run folder. A measurement uses its own random numbers, so that the
    training is bit-identical with and without it. Subclasses implement `measure`, which every rank calls.

    Args:
        every_n_steps: number of generator iterations between two measurements.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, the same in every measurement.

    Attributes:
        headline: key of the value that summaries show first.
        directions: whether the best value of each key is the `min` or the `max`; None for neither.
        values, first: the last and the first measured values by key.
        best: the best value of each key and its generator iteration.
        measured_at: generator iteration of the last measurement.
        protocol: plain values, besides the training, that the measured values depend on.
        left_out: reason why each requested but unmeasured score is left out, by name.

    Raises:
        RefusedInput: a number below 1, or more than a million samples.
    """

    reads_losses = False
    headline: str
    directions: dict[str, str | None] = {}

    def __init__(self, every_n_steps: int, num_samples: int, batch_size: int, seed: int) -> None:
        refuse_below(1, every_n_steps=every_n_steps, num_samples=num_samples, batch_size=batch_size)
        refuse_above(_MOST_SAMPLES, num_samples=num_samples)
        self.every_n_steps, self.num_samples, self.batch_size, self.seed = every_n_steps, num_samples, batch_size, seed
        self.values: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.best: dict[str, tuple[float, int]] = {}
        self.measured_at = 0
        self.protocol: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self._stamped = False

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        """Returns values by key, computed over all ranks."""
        raise NotImplementedError

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        """Returns the protocol as plain values; called after the first measurement."""
        return {
            "data": repr(data_of(trainer)),
            "num_fake": self.num_samples,
            "weights": "raw" if module.averaged_generator is None else "ema",
            "batch_norm": RUNNING_STATISTICS,
            "seed": self.seed,
            "versions": versions(),
        }

    def summary(self) -> list[str]:
        """Returns lines for the report of the run."""
        text = ", ".join(f"{name.removeprefix('metric/')} {value:.4g}" for name, value in self.values.items())
        first, name = self.first.get(self.headline, float("nan")), self.headline.removeprefix("metric/")
        untrained = f"; {name} of the untrained networks: {first:.4g}" if self.measured_at else ""
        return [f"metrics     {text} {self.measured_when()}{untrained}", *self.best_lines()]

    def measured_when(self) -> str:
        """Returns when the last values were measured, in words."""
        return f"at iteration {self.measured_at}" if self.measured_at else "of the untrained networks"

    def best_lines(self) -> list[str]:
        """Returns a line with the best values, where these are better than the last and the untrained values."""
        better = {
            name: best
            for name, best in self.best.items()
            if best[0] != self.values.get(name) and self._is_better(name, best[0], self.first.get(name, math.nan))
        }
        text = ", ".join(
            f"{name.removeprefix('metric/')} {v:.4g} at iteration {step}" for name, (v, step) in better.items()
        )
        return [f"{'':11} best: {text}"] if text else []

    def _is_better(self, name: str, value: float, untrained: float) -> bool:
        """Whether a value is not worse than that of the untrained networks, which is NaN if unknown."""
        return not (value < untrained if self.directions[name] == "max" else value > untrained)

    def state_dict(self) -> dict[str, Any]:
        best = {name: list(pair) for name, pair in self.best.items()}
        values = {"values": self.values, "first": self.first, "measured_at": self.measured_at, "best": best}
        return values | {"protocol": self.protocol}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values, self.first = state_dict["values"], state_dict["first"]
        self.measured_at = state_dict["measured_at"]
        self.best = {name: tuple(pair) for name, pair in state_dict.get("best", {}).items()}
        self.protocol = state_dict.get("protocol", {})

    def on_train_start(self, trainer: Trainer, pl_module: GenerativeModule) -> None:
        self._log(trainer)
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)
            self.first, self.best = self.values, {}  # of a trained generator, as best.ckpt

    def on_train_batch_end(self, trainer: Trainer, pl_module: GenerativeModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0 or trainer.global_step == trainer.max_steps:
            self._measure(trainer, pl_module)

    def _measure(self, trainer: Trainer, module: GenerativeModule) -> None:
        description = f"{self.headline.removeprefix('metric/')} on {self.num_samples} samples"
        for callback in callbacks_of(trainer, GenerativeCallback):
            callback.on_measure_start(trainer, description)
        with paused(trainer):
            module.gather_generator()
            self.values = self.measure(trainer, module)
            if not self._stamped:
                self.protocol, self._stamped = self.stamp(trainer, module), True
                self._write_protocol(trainer)
            self.measured_at = trainer.global_step
            self._keep_best()
            self._log(trainer)
            for logger in trainer.loggers:
                logger.log_metrics(self.values, step=trainer.global_step)
        for callback in callbacks_of(trainer, GenerativeCallback):
            callback.on_measure_end(trainer)

    def _log(self, trainer: Trainer) -> None:
        """Hands the last values to callbacks, such as Lightning's `ModelCheckpoint`, and to progress bars.

        `self.log` is not allowed at the start of a training, and would write to loggers every `log_every_n_steps`.
        """
        values = {name: torch.tensor(value) for name, value in self.values.items()}
        trainer.callback_metrics.update(values)
        trainer.logged_metrics.update(values)
        trainer.progress_bar_metrics.update(
            {name: value for name, value in self.values.items() if name == self.headline}
        )

    def _write_protocol(self, trainer: Trainer) -> None:
        """Writes the protocol under its headline, next to the protocols of the run's other measurements."""
        if trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / PROTOCOL
            others = _read(path) if path.is_file() else {}
            with writing(path), replacing(path) as part:
                part.write_text(json.dumps(others | {self.headline: self.protocol}, indent=2) + "\n")

    def _keep_best(self) -> None:
        for name, direction in self.directions.items():
            sign = 1 if direction == "min" else -1
            if direction is not None and name in self.values:
                new = (self.values[name], self.measured_at)
                self.best[name] = min(self.best.get(name, new), new, key=lambda pair: sign * pair[0])

    def generated(self, trainer: Trainer, module: GenerativeModule) -> Iterator[torch.Tensor]:
        """Yields this rank's batches of generated images in [0, 1], a contiguous share of all images."""
        inputs = _share(module.sampling_inputs(self.num_samples, self.seed, data_of(trainer)), trainer)
        labels = self.requested_labels(trainer, module)
        for start in range(0, len(inputs), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield module.decode(inputs[rows], labels=None if labels is None else labels[rows], seed=self.seed)

    def requested_labels(self, trainer: Trainer, module: GenerativeModule) -> Int64[Tensor, " n"] | None:
        """Returns the classes that `generated` asks for, or None for a generator without classes."""
        labels = module.labels(self.num_samples)
        return None if labels is None else _share(labels, trainer)


def _share(rows: Tensor, trainer: Trainer) -> Tensor:
    """Returns this rank's rows."""
    return rows.tensor_split(trainer.world_size)[trainer.global_rank]


def share(batches: Iterable[Any], trainer: Trainer) -> Iterator[Any]:
    """Yields this rank's batches."""
    return (batch for index, batch in enumerate(batches) if index % trainer.world_size == trainer.global_rank)


def _read(path: Path) -> dict[str, Any]:
    """Returns the protocols of a file, or none, with a warning, if it is damaged: it is written again."""
    try:
        found = json.loads(path.read_text()) if path.stat().st_size < _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    logger.warning("%s is damaged and is written again: only the protocols of this run's measurements are in it.", path)
    return {}
