"""`lit-gans average run=DIR width=NUMBER`: computes an average of the generator's weights after training.

Examples:
    lit-gans average run=outputs/dcgan_digits/version_0 width=0.1
    lit-gans average run=outputs/dcgan_digits/version_0 width=0.03 output=short.ckpt
    lit-gans average run=outputs/dcgan_digits/version_0 width=0.2 output=averaged/long.ckpt
"""

from __future__ import annotations

from pathlib import Path

import torch

from lit_gans.callbacks.power_ema import FOLDER, exponent, load_average, snapshots_in
from lit_gans.checkpoints.format import EMA_KEY, FORMAT_VERSION, read_checkpoint
from lit_gans.checkpoints.locate import FOLDER as CHECKPOINTS
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.common.atomic import kept, replacing
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import module_from
from lit_gans.config.run_folder import LAST, output_file

# entries of a checkpoint that describe the state of the training, not the networks
_TRAINING = ("callbacks", "loops", "lr_schedulers", "optimizer_states")


def average(run: str, width: float, output: str | None = None) -> Path:
    """Computes a power-function average of the generator's weights from the snapshots of a run (Karras et al. 2024).

    The run must have been trained with `callbacks=power_ema`. The average is computed for the iteration of the last
    snapshot, by least squares. It is written as the averaged generator of a checkpoint that `sample`, `evaluate`,
    `export` and `lit_gans.load` accept. The remaining networks are the last checkpoint's.

    Args:
        run: folder of the run.
        width: width of the average: the standard deviation of its profile relative to the length of the training
            (sigma_rel in the paper), above 0 and below 0.288. Wider averages contain older weights.
        output: path of the checkpoint; null uses `average_WIDTH.ckpt` in the run folder.

    Returns:
        The path of the checkpoint.

    Raises:
        RefusedInput: If the run has no snapshots, if they do not determine an average of this width, or if the output
            cannot be written.
    """
    exponent(width)
    folder = Path(run)
    snapshots = snapshots_in(folder / FOLDER)
    if not snapshots:
        missing = "there is no such folder" if not folder.is_dir() else f"it has no snapshots in {FOLDER}/"
        raise RefusedInput(f"run={run}: {missing}; use the folder of a run trained with callbacks=power_ema.")
    target = Path(output) if output else folder / f"average_{width:g}.ckpt"
    if target.resolve().parent.name == CHECKPOINTS:
        raise RefusedInput(f"output={target}: {CHECKPOINTS}/ is for checkpoints that resume a run; use another folder.")
    path = find_checkpoint(kept(folder / LAST) or folder)
    content = read_checkpoint(path)
    module = module_from(content, path)
    error = load_average(module, snapshots, width)
    assert module.averaged_generator is not None  # set by `load_average`
    content = {key: value for key, value in content.items() if key not in _TRAINING}
    content["global_step"] = iteration = snapshots[-1].iteration
    content[EMA_KEY] = {"format_version": FORMAT_VERSION, "state_dict": module.averaged_generator.state_dict()}
    with replacing(output_file(target)) as part:
        torch.save(content, part)
    print(f"average of {type(module).__name__} at iteration {iteration}, width {width:g}: {target}")
    print(f"  snapshots {len(snapshots)}, error of the profile {error:.2%}")
    return target
