"""Monitor of a measured value, for example to select the best checkpoint."""

from __future__ import annotations

from typing import NoReturn

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.measurement import Measurement
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.attached import callbacks_of
from lit_gans.training.callback import announced, directions_of

_OF_OTHERS = ("throughput/", "utilization/", "lr-")  # logged by callbacks that announce no names


class Monitor:
    """Reads each new value of a metric once and compares it with the best value.

    Args:
        name: key of the metric; `auto` uses the FID if it is measured, None reads nothing.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction that the
            measurement declares, and `min` for other values, such as losses.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name, self.mode = name, mode
        self._seen: torch.Tensor | None = None
        self._iterated = False  # whether an iteration has logged its losses

    @property
    def reads_losses(self) -> bool:
        """Whether the metric may be a loss, which has a new value in every iteration."""
        return self.name not in (None, "auto") and not str(self.name).startswith("metric/")

    def start(self, trainer: Trainer) -> None:
        """Marks the value at the start of a new or resumed training as read.

        Raises:
            RefusedInput: see `refuse_unmeasured`.
        """
        self._iterated = False
        self.refuse_unmeasured(trainer)
        self._seen = self._value(trainer)

    def refuse_unmeasured(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if no callback measures the metric or, after an iteration, nothing has logged it."""
        if self.name in (None, "auto") or self.name in trainer.callback_metrics:
            return
        assert self.name is not None
        measured = self.name.startswith("metric/")
        if not (measured or self._iterated):  # losses are logged by the first iteration
            return
        self._refuse(trainer, [name for name in trainer.callback_metrics if name.startswith("metric/") or not measured])

    def refuse_unknown(self, trainer: Trainer, module: LightningModule) -> None:
        """Raises `RefusedInput` before the training if nothing will log the metric.

        That is known where module and callbacks are those of this package, or Lightning's: others may log any value,
        and see `refuse_unmeasured`.
        """
        name, known = self.name, announced(trainer, module)
        if name is None or name == "auto" or name.startswith(_OF_OTHERS):
            return
        if known is None or not isinstance(module, AdversarialModule):
            return
        known += [f"loss/{network}" for network in module.network_names]
        if name not in known:
            self._refuse(trainer, known)

    def _refuse(self, trainer: Trainer, found: list[str]) -> NoReturn:
        assert self.name is not None
        advice = nearest(self.name, found) if found else "choose what is measured with metrics=."
        left_out = [
            f"{name} is left out: {reason}"
            for measurement in callbacks_of(trainer, Measurement)
            for name, reason in measurement.left_out.items()
        ]
        raise RefusedInput(" ".join([f"monitor={self.name}: nothing measures it; {advice}", *left_out]))

    def refuse_unlogged(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if nothing has logged the value in the first iteration, after which this is called."""
        if not self._iterated:
            self._iterated = True
            self.refuse_unmeasured(trainer)

    def new(self, trainer: Trainer) -> float | None:
        """Returns the value if it was measured in this iteration, averaged over ranks, otherwise None."""
        value = self._value(trainer)
        if value is None or value is self._seen:
            return None
        self._seen = value
        return self.value(trainer)

    def value(self, trainer: Trainer) -> float | None:
        """Returns the last value, averaged over ranks, or None."""
        value = self._value(trainer)
        if value is None or trainer.world_size == 1:
            return value if value is None else float(value)
        return float(trainer.strategy.reduce(value.to(trainer.strategy.root_device, torch.double, copy=True)))

    def better(self, trainer: Trainer, value: float, best: float | None) -> bool:
        """Returns whether a value is better than the best value so far."""
        sign = -1 if self._direction(trainer) == "max" else 1
        return best is None or sign * value < sign * best

    def _key(self, trainer: Trainer) -> str | None:
        if self.name != "auto":
            return self.name
        return next((name for name in trainer.callback_metrics if name.startswith("metric/fid_")), None)

    def _value(self, trainer: Trainer) -> torch.Tensor | None:
        key = self._key(trainer)
        return None if key is None else trainer.callback_metrics.get(key)

    def _direction(self, trainer: Trainer) -> str | None:
        if self.mode != "auto":
            return self.mode
        return directions_of(trainer).get(self._key(trainer) or "")
