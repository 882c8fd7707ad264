"""Score of a job for Hydra sweepers that optimize, such as `hydra/sweeper=optuna`."""

from __future__ import annotations

from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch import LightningModule, Trainer
from omegaconf import OmegaConf

from lit_gans.callbacks import RunCheckpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback, callbacks_of

_MODES = {"minimize": "min", "maximize": "max"}


class RefusedSweep(RefusedInput):
    """Raised for an error that every job of a sweep would raise. The first job therefore ends the sweep."""


class SweepScore(GenerativeCallback):
    """Verifies before the first iteration that a run has a score, and that the sweeper's direction is right.

    The score is the value of the best checkpoint, see `RunCheckpoint`. The value of the untrained networks does not
    count.

    Args:
        mode: whether the sweeper searches for the smallest (`min`) or the largest (`max`) score; None if the direction
            is not configured.

    Raises:
        RefusedSweep: If there is no score, or if the sweeper searches for the worst score. Raised by `on_fit_start`.
    """

    def __init__(self, mode: str | None) -> None:
        self.mode = mode

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        monitored = next((checkpoint.monitored(trainer) for checkpoint in callbacks_of(trainer, RunCheckpoint)), None)
        if monitored is None:
            raise RefusedSweep(
                "hydra/sweeper optimizes a score, but this training has none: choose metrics= with an FID, or set"
                " callbacks.checkpoint.monitor= to the key of another value."
            )
        key, mode = monitored
        if self.mode is not None and mode != self.mode:
            wanted = next(name for name, value in _MODES.items() if value == mode)
            raise RefusedSweep(
                f"hydra/sweeper searches for the {self.mode} of {key}, but its {mode} is best: use"
                f" hydra.sweeper.direction={wanted}."
            )


def sweep_score() -> SweepScore | None:
    """Returns the callback for a job of a sweep that optimizes a score, or None for all other jobs.

    Raises:
        RefusedSweep: If the sweeper optimizes several scores.
    """
    hydra = HydraConfig.get()
    sweeper: Any = OmegaConf.to_container(hydra.sweeper, resolve=False)
    if hydra.mode != RunMode.MULTIRUN or sweeper["_target_"].rpartition(".")[2] == "BasicSweeper":
        return None
    direction = sweeper.get("direction")  # Optuna's sweeper has this key; no other sweeper is known to have it
    if isinstance(direction, list):
        raise RefusedSweep(f"hydra.sweeper.direction={direction}: a training has only one score; use one direction.")
    return SweepScore(_MODES.get(getattr(direction, "name", direction)))
