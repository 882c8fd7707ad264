"""Callback that averages the generator's weights (Yazici et al. 2019), for sample grids, metrics and `sample()`."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.common._compat.torch import copy_all
from lit_gans.common.errors import refuse_below
from lit_gans.strategies.average import AveragedParameters, refuse_decay, warmed_up
from lit_gans.strategies.base import sharding
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.module import AdversarialModule
from lit_gans.training.schedules import Number, Progress, ends, value_at


class EMA(GenerativeCallback):
    """Maintains an exponential moving average of the generator's weights. Batch-norm buffers are copied, not averaged.

    The average is stored in the module as `averaged_generator` and in the checkpoint as `generator_ema`. Lightning's
    `EMAWeightAveraging` is not used, because it averages the discriminator too, does not support sharded networks,
    swaps the averaged and the trained weights in checkpoints, and has neither warmup nor half-lives.

    Args:
        decay: decay rate per generator iteration, in [0, 1). At iteration t, the decay rate is at most
            (1 + t) / (10 + t), so that the average quickly forgets the initial weights.
        half_life: number of real images over all ranks after which the contribution of old weights to the average has
            halved (Karras et al. 2020). Can be a schedule. null uses `decay`.

    Raises:
        RefusedInput: If `decay` is outside [0, 1), or if `half_life` is negative.
    """

    updates_average = True
    module_class = AdversarialModule
    conflict = "update the averaged generator"

    def __init__(self, decay: float = 0.999, half_life: Number | None = None) -> None:
        refuse_decay(decay)
        for end in () if half_life is None else ends(half_life):
            refuse_below(0, half_life=end)
        self.decay, self.half_life = decay, half_life
        self._average: AveragedParameters | None = None

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        average = pl_module.averaged_generator
        average = (pl_module.start_average() if average is None else average).to(pl_module.device)
        # every rank averages its own shards; `gather_average` gathers them
        self._average = AveragedParameters(pl_module.generator.parameters(), trainer.strategy, average.parameters())
        self._buffers = list(average.buffers()), list(pl_module.generator.buffers())

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: AdversarialModule, *_: Any) -> None:
        decay = self._decay(trainer.global_step, pl_module.progress)
        assert self._average is not None  # set in `on_train_start`
        self._average.update(decay)
        copy_all(*self._buffers)

    def _decay(self, step: int, progress: Progress) -> float:
        if self.half_life is None:
            return warmed_up(self.decay, step)
        half_life = value_at(self.half_life, progress)
        return 0.5 ** (progress.images_per_iteration / half_life) if half_life else 0.0

    @torch.no_grad()
    def gather_average(self, module: AdversarialModule) -> None:
        """Copies the averaged shards of all ranks into the averaged generator. All ranks must call this method."""
        average = module.averaged_generator
        if self._average is not None and average is not None and sharding(module.trainer.strategy) is not None:
            for full, gathered in zip(average.parameters(), self._average.full(), strict=True):
                full.copy_(gathered)
