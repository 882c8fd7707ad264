"""Callback for fine-tuning: initializes the networks of a new run from a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import nn

from lit_gans.checkpoints.diffusers import is_published
from lit_gans.checkpoints.format import EMA_KEY, read_checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.module import AdversarialModule
from lit_gans.training.resuming import changed_settings, made_by
from lit_gans.training.transfer import Transferred, transfer

logger = logging.getLogger(__name__)

# settings that an autoencoder's weights depend on, although the settings do not change the shapes of the weights
_NEEDED = ("asymmetric_padding", "groups", "scaling_factor", "shift_factor")
_MIN_SHARE = 0.1  # a checkpoint that fits a smaller share of a network's weights is most likely the wrong one


class InitFrom(GenerativeCallback):
    """Loads the networks of a checkpoint into a new run. Networks of different sizes are loaded as far as they fit.

    Loads the generator, the discriminators and, if the checkpoint contains one, the averaged generator, see
    `lit_gans.training.transfer`. Optimizers and counters start from scratch. A log message says which weights were
    loaded. In a run that continues, it does nothing.

    Layers that have learned nothing must not be frozen. These are layers that are missing in the checkpoint, and the
    input layer of a color-image discriminator loaded from a gray-image discriminator. The weights of this input layer
    are equal for all color channels, so the layer cannot distinguish colors.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; `zoo/NAME`;
            `hf://owner/name`; or a published autoencoder (a diffusers folder or a .safetensors file), see
            `AutoencoderKL.from_diffusers`.
    """

    conflict = "initialize the networks"
    module_class = AdversarialModule

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        assert isinstance(pl_module, AdversarialModule)  # otherwise, `setup` of the base class raises an error
        if stage == "fit" and trainer.ckpt_path is None and trainer.global_step == 0:
            for sentence in self.load(pl_module):
                logger.info("init_from: %s", sentence)

    def load(self, pl_module: AdversarialModule) -> list[str]:
        """Loads the networks of the checkpoint into a module, and returns one sentence per network.

        Raises:
            RefusedInput: If the checkpoint fits less than 10 % of a network's weights, if a frozen layer has learned
                nothing, or if this module and the checkpoint differ in a setting that the weights depend on.
        """
        if is_published(self.checkpoint):
            if not isinstance(pl_module, AutoencoderKL):
                raise RefusedInput(
                    f"init_from={self.checkpoint} is an autoencoder, but this model is a {type(pl_module).__name__}:"
                    " use model=autoencoder_kl."
                )
            pl_module.load_published(self.checkpoint)
            return ["generator: 100% of the weights"]
        checkpoint, sentences = read_checkpoint(self.checkpoint), []
        self._refuse_other_settings(pl_module, checkpoint.get("hyper_parameters", {}))
        for name in pl_module.network_names:
            prefix = f"{name}."
            state = {
                key.removeprefix(prefix): value
                for key, value in checkpoint["state_dict"].items()
                if key.startswith(prefix)
            }
            network = pl_module.get_submodule(name)
            transferred = transfer(network, state)
            if transferred.share < _MIN_SHARE:
                saved, current = made_by(checkpoint), type(pl_module).__name__
                different_class = f"of a {saved}, this is a {current}" if saved not in ("", current) else ""
                why = different_class or changed_settings(pl_module, checkpoint, most=3)
                raise RefusedInput(
                    f"init_from={self.checkpoint}: the checkpoint fits only {transferred.share:.0%} of the {name}"
                    f"{f' ({why})' if why else ''}: choose the same model, network and widths."
                )
            if pl_module.freeze_discriminator:
                self._refuse_frozen(pl_module.freeze_discriminator, name, network, transferred)
            sentences.append(f"{name}: {transferred}")
        average = checkpoint.get(EMA_KEY)
        if average is not None:
            transfer(pl_module.start_average(), average["state_dict"])
        return sentences

    def _refuse_other_settings(self, pl_module: AdversarialModule, theirs: Mapping[str, Any]) -> None:
        """Raises `RefusedInput` if the module and the checkpoint differ in a setting that the weights depend on."""
        for name in _NEEDED:
            if name in theirs and name in pl_module.hparams and theirs[name] != pl_module.hparams[name]:
                needed, ours = (_typed(value) for value in (theirs[name], pl_module.hparams[name]))
                raise RefusedInput(
                    f"init_from={self.checkpoint}: its weights need {name}={needed}, but this model has {name}={ours}:"
                    f" add model.{name}={needed}."
                )

    def _refuse_frozen(self, num: int, name: str, network: nn.Module, transferred: Transferred) -> None:
        """Raises `RefusedInput` if a frozen layer of a network has learned nothing."""
        for key, value in network.named_parameters():
            if value.requires_grad:
                continue
            if key in transferred.left:
                why = "the checkpoint does not have in this size"
            elif key in transferred.adapted and value.shape[1] > 1:
                why = "was trained on gray images and cannot distinguish colors"
            else:
                continue
            raise RefusedInput(
                f"init_from={self.checkpoint}: model.freeze_discriminator={num} freezes {key} of the {name}, which"
                f" {why}: freeze no layers, or use a checkpoint with the same networks and image channels."
            )


def _typed(value: object) -> str:
    """Formats a value as it is typed on the command line."""
    return "null" if value is None else str(value).lower()
