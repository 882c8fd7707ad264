"""Fine-tuning: initializes a new run with the networks of a checkpoint."""

from __future__ import annotations

import logging

from lightning.pytorch import Trainer
from torch import nn

from lit_gans.checkpoints.format import EMA_KEY, read_checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.module import AdversarialModule
from lit_gans.training.resuming import changed_settings, made_by
from lit_gans.training.transfer import Transferred, transfer

logger = logging.getLogger(__name__)

_LEAST = 0.1  # share of a network's weights; less is most likely a mistake


class InitFrom(GenerativeCallback):
    """Loads the networks of a checkpoint into a new run, also those of other sizes as far as they fit.

    Generator, discriminators and, where there is one, the averaged generator are loaded, see
    `lit_gans.training.transfer`; optimizers and counters begin anew. What was loaded is logged. Does nothing in a run
    that `trainer.ckpt_path` resumes, which restores its own weights.

    Refuses to freeze layers that learned nothing: those that are not in the checkpoint, and those of a discriminator of
    gray images in one of color images, whose equal weights see no color.

    Args:
        checkpoint: path of a file, of the folder of a run or of a folder of `lit-gans export`; `zoo/NAME`; or
            `hf://owner/name`.
    """

    conflict = "initialize the networks"

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        if stage == "fit" and trainer.ckpt_path is None:
            for sentence in self.load(pl_module):
                logger.info("init_from: %s", sentence)

    def load(self, pl_module: AdversarialModule) -> list[str]:
        """Loads the networks of the checkpoint into a module; returns a sentence about each.

        Raises:
            RefusedInput: a network has too little in common with its checkpoint, or a frozen layer learned nothing.
        """
        checkpoint, sentences = read_checkpoint(self.checkpoint), []
        for name in pl_module.network_names:
            prefix = f"{name}."
            state = {
                key.removeprefix(prefix): value
                for key, value in checkpoint["state_dict"].items()
                if key.startswith(prefix)
            }
            network = pl_module.get_submodule(name)
            found = transfer(network, state)
            if found.share < _LEAST:
                there, here = made_by(checkpoint), type(pl_module).__name__
                other = f"of a {there}, this is a {here}" if there not in ("", here) else ""
                why = other or changed_settings(pl_module, checkpoint, most=3)
                raise RefusedInput(
                    f"init_from={self.checkpoint}: only {found.share:.0%} of the {name} fit the checkpoint"
                    f"{f' ({why})' if why else ''}: choose the same model, network and widths."
                )
            if pl_module.freeze_discriminator:
                self._refuse_frozen(pl_module.freeze_discriminator, name, network, found)
            sentences.append(f"{name}: {found}")
        average = checkpoint.get(EMA_KEY)
        if average is not None:
            transfer(pl_module.start_average(), average["state_dict"])
        return sentences

    def _refuse_frozen(self, num: int, name: str, network: nn.Module, found: Transferred) -> None:
        """Raises `RefusedInput` if a frozen layer of a network has learned nothing."""
        for key, value in network.named_parameters():
            if value.requires_grad:
                continue
            if key in found.left:
                why = "the checkpoint does not have in this size"
            elif key in found.adapted and value.shape[1] > 1:
                why = "comes from gray images and would see no color"
            else:
                continue
            raise RefusedInput(
                f"init_from={self.checkpoint}: model.freeze_discriminator={num} freezes {key} of the {name}, which"
                f" {why}: freeze no layers, or begin with a checkpoint of such images and networks."
            )
