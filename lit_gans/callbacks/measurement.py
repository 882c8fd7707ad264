"""What every measurement of generated images shares: when, how many, where the values go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.throughput import paused
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.metrics.protocol import RUNNING_STATISTICS, versions
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.generative import GenerativeModule

PROTOCOL = "protocol.json"


class Measurement(GenerativeCallback):
    """Measures the sampling generator at iteration 0, every `every_n_steps` and at the last iteration.

    The values are logged, kept in checkpoints and can steer them. What they depend on is their protocol, in
    `protocol.json` of the run's folder and in checkpoints. Random numbers are its own: a training with it is
    bitwise the one without. A subclass says in `measure` what is measured; on several ranks each calls it.

    Args:
        every_n_steps: generator iterations between two measurements.
        num_samples: generated images in a measurement.
        batch_size: images generated and measured at once.
        seed: of the latents, the same in every measurement.

    Raises:
        RefusedInput: a number below 1.
    """

    headline: str  # the value that a person reads first
    directions: dict[str, str | None] = {}  # of each key: whether the best is the `min` or the `max`

    def __init__(self, every_n_steps: int, num_samples: int, batch_size: int, seed: int) -> None:
        if min(every_n_steps, num_samples, batch_size) < 1:
            raise RefusedInput(f"{every_n_steps=}, {num_samples=} and {batch_size=} must be at least 1.")
        self.every_n_steps, self.num_samples, self.batch_size, self.seed = every_n_steps, num_samples, batch_size, seed
        self.values: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.best: dict[str, tuple[float, int]] = {}  # value and generator iteration
        self.measured_at = 0
        self.protocol: dict[str, Any] = {}  # what the values depend on beside the generator's training
        self._stamped = False

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        """Returns the values by key, of all ranks together."""
        raise NotImplementedError

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        """Returns the protocol, plain values, once something was measured."""
        return {
            "data": repr(trainer.datamodule),
            "num_fake": self.num_samples,
            "weights": "raw" if module.averaged_generator is None else "ema",
            "batch_norm": RUNNING_STATISTICS,
            "seed": self.seed,
            "versions": versions(),
        }

    def summary(self) -> list[str]:
        """Returns lines for a person."""
        text = ", ".join(f"{name.removeprefix('metric/')} {value:.4g}" for name, value in self.values.items())
        first = self.first.get(self.headline, float("nan"))
        return [
            f"metrics     {text} ({self.headline.removeprefix('metric/')} was {first:.4g} at iteration 0)",
            *self.best_lines(),
        ]

    def best_lines(self) -> list[str]:
        """Returns a line with the best of each value, where one was better than the last."""
        better = {name: best for name, best in self.best.items() if best[1] != self.measured_at}
        text = ", ".join(f"{name.removeprefix('metric/')} {v:.4g} at {step}" for name, (v, step) in better.items())
        return [f"{'':11} best: {text}"] if text else []

    def state_dict(self) -> dict[str, Any]:
        best = {name: list(pair) for name, pair in self.best.items()}
        kept = {"values": self.values, "first": self.first, "measured_at": self.measured_at, "best": best}
        return kept | {"protocol": self.protocol}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values, self.first = state_dict["values"], state_dict["first"]
        self.measured_at = state_dict["measured_at"]
        self.best = {name: tuple(pair) for name, pair in state_dict.get("best", {}).items()}
        self.protocol = state_dict.get("protocol", {})

    def on_train_start(self, trainer: Trainer, pl_module: GenerativeModule) -> None:
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in self.values.items()})
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)
            self.first = self.values

    def on_train_batch_end(self, trainer: Trainer, pl_module: GenerativeModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0 or trainer.global_step == trainer.max_steps:
            self._measure(trainer, pl_module)

    def _measure(self, trainer: Trainer, module: GenerativeModule) -> None:
        for callback in trainer.callbacks:
            if isinstance(callback, GenerativeCallback):
                callback.on_measure_start(
                    trainer, f"{self.headline.removeprefix('metric/')} on {self.num_samples} samples"
                )
        with paused(trainer):
            module.gather_generator()
            self.values = self.measure(trainer, module)
            if not self._stamped:
                self.protocol, self._stamped = self.stamp(trainer, module), True
                self._write_protocol(trainer)
            self.measured_at = trainer.global_step
            self._keep_best()
            trainer.callback_metrics.update({name: torch.tensor(value) for name, value in self.values.items()})
            for logger in trainer.loggers:
                logger.log_metrics(self.values, step=trainer.global_step)
        for callback in trainer.callbacks:
            if isinstance(callback, GenerativeCallback):
                callback.on_measure_end(trainer)

    def _write_protocol(self, trainer: Trainer) -> None:
        """Adds the protocol to those of the run's other measurements, each under its first key."""
        if trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / PROTOCOL
            path.parent.mkdir(parents=True, exist_ok=True)
            others = json.loads(path.read_text()) if path.is_file() else {}
            path.write_text(json.dumps(others | {self.headline: self.protocol}, indent=2) + "\n")

    def _keep_best(self) -> None:
        for name, direction in self.directions.items():
            sign = 1 if direction == "min" else -1
            if direction is not None and name in self.values:
                new = (self.values[name], self.measured_at)
                self.best[name] = min(self.best.get(name, new), new, key=lambda pair: sign * pair[0])

    def generated(self, trainer: Trainer, module: GenerativeModule) -> Iterator[torch.Tensor]:
        """Yields this rank's batches of generated images; every rank has some, or metrics would wait for each other."""
        inputs = module.sampling_inputs(self.num_samples, self.seed, trainer.datamodule)
        own = inputs.tensor_split(trainer.world_size)[trainer.global_rank]
        return (module.decode(part, seed=self.seed) for part in own.split(self.batch_size))


class Monitor:
    """A measured value that steers something: the new ones, each once, and whether one is the best so far.

    Args:
        name: key of the value; `auto` is the FID where there is one, and null nothing.
        mode: whether the best is the smallest or the largest; `auto` is what the measurement says of its value, and the
            smallest of others, such as losses.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name, self.mode = name, mode
        self._seen: torch.Tensor | None = None

    def start(self, trainer: Trainer) -> None:
        """Takes what is there at the start of a training, perhaps a resumed one, for seen.

        Raises:
            RefusedInput: see `refuse_unmeasured`.
        """
        self.refuse_unmeasured(trainer)
        self._seen = self._value(trainer)

    def refuse_unmeasured(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` where no measurement makes the value: it would be waited for in vain."""
        if self.name is not None and self.name.startswith("metric/") and self.name not in trainer.callback_metrics:
            found = [name for name in trainer.callback_metrics if name.startswith("metric/")]
            told = nearest(self.name, found) if found else "choose what is measured with metrics=."
            raise RefusedInput(f"monitor={self.name}: nothing measures it; {told}")

    def new(self, trainer: Trainer) -> float | None:
        """Returns the value where it was measured in this iteration: the mean of all ranks, so that they agree."""
        value = self._value(trainer)
        if value is None or value is self._seen:
            return None
        self._seen = value
        if trainer.world_size == 1:
            return float(value)
        return float(trainer.strategy.reduce(value.to(trainer.strategy.root_device, torch.double, copy=True)))

    def better(self, trainer: Trainer, value: float, best: float | None) -> bool:
        """Returns whether a value is better than the best so far."""
        sign = -1 if self._direction(trainer) == "max" else 1
        return best is None or sign * value < sign * best

    def _key(self, trainer: Trainer) -> str | None:
        if self.name != "auto":
            return self.name
        return next((name for name in trainer.callback_metrics if name.startswith("metric/fid_")), None)

    def _value(self, trainer: Trainer) -> torch.Tensor | None:
        return trainer.callback_metrics.get(self._key(trainer))

    def _direction(self, trainer: Trainer) -> str | None:
        if self.mode != "auto":
            return self.mode
        measurements = (callback for callback in trainer.callbacks if isinstance(callback, Measurement))
        known = {name: direction for each in measurements for name, direction in each.directions.items()}
        return known.get(self._key(trainer))


def share(batches: Iterable[Any], trainer: Trainer) -> Iterator[Any]:
    """Yields the batches of this rank."""
    return (batch for index, batch in enumerate(batches) if index % trainer.world_size == trainer.global_rank)
