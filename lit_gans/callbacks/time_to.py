"""Seconds of training until a metric has passed a value."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.training.callback import announced, directions_of

_METRIC = "metric/"


class TimeTo:
    """Records when each metric first passed a wanted value.

    Args:
        wanted: values by name, with or without `metric/`.

    Raises:
        RefusedInput: a value is not finite.

    Attributes:
        reached: seconds of training until each wanted value was passed, by name without `metric/`.
    """

    def __init__(self, wanted: dict[str, float]) -> None:
        for name, value in wanted.items():
            if not math.isfinite(value):
                raise RefusedInput(f"time_to.{name}={value} must be finite.")
        self.wanted = {name.removeprefix(_METRIC): float(value) for name, value in wanted.items()}
        self.reached: dict[str, float] = {}

    def refuse_unknown(self, trainer: Trainer, module: LightningModule) -> None:
        """Raises `RefusedInput` for a value of a metric that nothing will measure, as far as that is known."""
        known = announced(trainer, module)
        measured = [key.removeprefix(_METRIC) for key in known or () if key.startswith(_METRIC)]
        for name in self.wanted:
            if known is not None and name not in measured:
                advice = nearest(name, measured) if measured else "choose what is measured with metrics=."
                raise RefusedInput(f"time_to.{name}: nothing measures it; {advice}")

    def observe(self, trainer: Trainer, seconds: float) -> None:
        """Compares the values in `trainer.callback_metrics`, measured after some seconds of training."""
        directions = directions_of(trainer)
        for key, tensor in trainer.callback_metrics.items():
            name, value = key.removeprefix(_METRIC), float(tensor)
            if not key.startswith(_METRIC):
                continue
            sign = -1 if directions.get(key) == "max" else 1
            if name in self.wanted and name not in self.reached and sign * value <= sign * self.wanted[name]:
                self.reached[name] = seconds

    def lines(self) -> list[str]:
        """Returns what each run's report says."""
        lines = []
        for name, value in self.wanted.items():
            when = f"after {self.reached[name]:.1f} s of training" if name in self.reached else "not reached"
            lines.append(f"time to     {name} {value:g}: {when}")
        return lines

    def columns(self) -> dict[str, float]:
        """Returns the seconds by column of a sweep's table; NaN if a value was not reached."""
        missing = float("nan")
        return {f"s to {name} {value:g}": self.reached.get(name, missing) for name, value in self.wanted.items()}

    def state(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return {"reached": self.reached}

    def load(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self.reached = dict(state["reached"])
