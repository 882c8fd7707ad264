"""From a checkpoint to its module, whatever its class."""

from __future__ import annotations

from pathlib import Path

from lit_gans.checkpoints.format import FORMAT_KEY, class_path, from_plain, read_checkpoint
from lit_gans.checkpoints.renamed import current_path
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import IMPORT_VARIABLE, gans
from lit_gans.training.adversarial import AdversarialModule


def load(path: str | Path) -> AdversarialModule:
    """Returns the module of a checkpoint, on the CPU, with its averaged weights, ready for `.sample()`.

    Raises:
        RefusedInput: the file is missing or damaged, or its class is not a registered GAN. Loading imports no code that
            the checkpoint names.
    """
    checkpoint = read_checkpoint(path)
    made_by = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    made_by = current_path(made_by) if made_by else None
    known = {class_path(cls): cls for cls in gans().values()}
    if made_by not in known:
        raise RefusedInput(
            f"{path} was made by {made_by or 'something else than lit_gans'}, which is not a registered GAN"
            f" ({', '.join(sorted(gans()))}): name its module in {IMPORT_VARIABLE}."
        )
    settings = {name: from_plain(value) for name, value in checkpoint["hyper_parameters"].items()}
    module = known[made_by](**settings)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    return module
