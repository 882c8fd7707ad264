"""Fine-tuning: initializes a new run with the networks of a checkpoint."""

from __future__ import annotations

from lightning.pytorch import Trainer

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.callback import GenerativeCallback


class InitFrom(GenerativeCallback):
    """Loads the trained (raw) networks of a checkpoint into a new run; optimizers, averages and counters are reset.

    Does nothing in a resumed run, which restores its own weights.

    Args:
        checkpoint: path of the checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        if stage == "fit" and trainer.ckpt_path is None:
            checkpoint = read_checkpoint(self.checkpoint)
            pl_module.refuse_other_architecture(checkpoint)
            pl_module.load_state_dict(checkpoint["state_dict"])
