"""Imports the parts of Lightning that the strategies use, from the package that `lightning_package` chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lit_gans.common.lightning_package import lightning_package

if TYPE_CHECKING or lightning_package() == "lightning.pytorch":
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler
    from lightning.pytorch.core.optimizer import LightningOptimizer
    from lightning.pytorch.overrides.distributed import prepare_for_backward
    from lightning.pytorch.plugins.io import TorchCheckpointIO
    from lightning.pytorch.plugins.precision import MixedPrecision, Precision
    from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy, Strategy, launchers
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn
else:
    from lightning_fabric.plugins import CheckpointIO, ClusterEnvironment
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.callbacks import GradientAccumulationScheduler
    from pytorch_lightning.core.optimizer import LightningOptimizer
    from pytorch_lightning.overrides.distributed import prepare_for_backward
    from pytorch_lightning.plugins.io import TorchCheckpointIO
    from pytorch_lightning.plugins.precision import MixedPrecision, Precision
    from pytorch_lightning.strategies import DDPStrategy, ParallelStrategy, Strategy, launchers
    from pytorch_lightning.trainer.states import TrainerFn
    from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn
