"""Callback of Lightning's Trainer that runs the check."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

from lit_gans.check.session import check_ranks
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import refuse_below
from lit_gans.common.lightning import Callback, LightningModule, Trainer, rank_zero_warn

_FITS = count()  # numbers the runs, because all runs of a process share one store


class RankConsistency(Callback):
    """Checks whether the ranks train one model, see `check_ranks`.

        trainer = Trainer(devices=2, callbacks=[RankConsistency(on_fault="raise")])

    Rank 0 prints the findings once each optimizer has run its recorded steps, or when the training ends.

    Args:
        steps: number of recorded steps per optimizer.
        on_fault: action on faults: `raise` raises `RuntimeError` on all ranks, `warn` emits a warning.
        patience: maximum wait of rank 0 for each other rank, in seconds.

    Raises:
        RefusedInput: if `steps` is below 1.
    """

    @converts_arguments
    def __init__(self, steps: int = 20, on_fault: Literal["raise", "warn"] = "warn", patience: float = 60.0) -> None:
        refuse_below(1, steps=steps)
        self.steps, self.on_fault, self.patience = steps, on_fault, patience
        self._check: check_ranks | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._check = check_ranks(self.steps, self.patience, f"fit {next(_FITS)}").__enter__()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._check is not None and self._check.has_watched(len(trainer.optimizers)):
            self._finish()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._check is not None:
            check, self._check = self._check, None
            check.finish(exception)
            if check.rank == 0:
                print(check.report(), flush=True)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._check is not None:  # a training without iterations calls neither of the two hooks above
            check, self._check = self._check, None
            check.close()

    def _finish(self) -> None:
        if self._check is None:
            return
        check, self._check = self._check, None
        check.finish()
        if check.rank == 0:
            print(check.report(), flush=True)
        num_faults = check.num_faults_on_rank_0()
        message = f"the ranks do not train one model: rank 0 prints {num_faults} faults above"
        if num_faults and self.on_fault == "raise":
            raise RuntimeError(message)
        if num_faults:
            rank_zero_warn(message)
