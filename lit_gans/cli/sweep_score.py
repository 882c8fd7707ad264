"""The score of a job that a sweeper of Hydra optimizes, such as `hydra/sweeper=optuna`."""

from __future__ import annotations

from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch import LightningModule, Trainer
from omegaconf import OmegaConf

from lit_gans.callbacks import Checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback, callbacks_of

_MODES = {"minimize": "min", "maximize": "max"}


class RefusedSweep(RefusedInput):
    """A sweep whose jobs all have the same mistake, which ends the sweep at its first job."""


class SweepScore(GenerativeCallback):
    """Raises `RefusedSweep` before the first iteration if a training has no score, or if the sweeper would look for the
    worst one.

    The score is the value of the best checkpoint, see `Checkpoint`: that of untrained networks does not count.

    Args:
        mode: whether the sweeper looks for the smallest (`min`) or the largest (`max`) score; None if it does not say.
    """

    def __init__(self, mode: str | None) -> None:
        self.mode = mode

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        monitored = next((each.monitored(trainer) for each in callbacks_of(trainer, Checkpoint)), None)
        if monitored is None:
            raise RefusedSweep(
                "hydra/sweeper optimizes a score, and this training has none: choose metrics= with an FID, or"
                " callbacks.checkpoint.monitor=KEY, the key of another value."
            )
        key, mode = monitored
        if self.mode is not None and mode != self.mode:
            wanted = next(name for name, value in _MODES.items() if value == mode)
            raise RefusedSweep(
                f"hydra/sweeper looks for the {self.mode} of {key}, whose {mode} is best: choose"
                f" hydra.sweeper.direction={wanted}."
            )


def sweep_score() -> SweepScore | None:
    """Returns the callback for the job of a sweep that optimizes a score; None for other jobs.

    Raises:
        RefusedSweep: the sweeper optimizes several scores.
    """
    hydra = HydraConfig.get()
    sweeper: Any = OmegaConf.to_container(hydra.sweeper, resolve=False)
    if hydra.mode != RunMode.MULTIRUN or sweeper["_target_"].rpartition(".")[2] == "BasicSweeper":
        return None
    direction = sweeper.get("direction")  # of Optuna's sweeper, which alone is known to have this key
    if isinstance(direction, list):
        raise RefusedSweep(f"hydra.sweeper.direction={direction}: a training has one score.")
    return SweepScore(_MODES.get(getattr(direction, "name", direction)))
