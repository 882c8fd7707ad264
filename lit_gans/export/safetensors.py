"""Exports networks to a folder of safetensors and JSON files, in the layout of the Hugging Face Hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from lit_gans.checkpoints.exported import (
    CARD,
    CONFIG,
    NETWORKS,
    RECORD,
    SAMPLES,
    TRAINING,
    WEIGHTS,
    networks_digest,
    read_config,
)
from lit_gans.checkpoints.format import EMA_KEY, FORMAT_KEY, joined, split
from lit_gans.common.atomic import replacing, unfinished
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.config.load import class_of
from lit_gans.data.images import write_grid
from lit_gans.export.card import card_of_networks, record_of, refuse_license
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import Weights

logger = logging.getLogger(__name__)

Dtype = Literal["float32", "float16"]
_NUM_SAMPLES = 16  # number of images in the model card


def save_networks(
    checkpoint: dict[str, Any],
    folder: str | Path,
    weights: Weights | None = None,
    dtype: Dtype = "float32",
    optimizers: bool = False,
    license: str | None = None,
) -> Path:
    """Writes the networks of a checkpoint to a folder that can be uploaded to the Hugging Face Hub without changes.

    `model.safetensors` contains the weights, and `config.json` contains the class and its arguments. `README.md` is a
    model card with scores, protocols and licenses. It shows `samples.png`, except for models that translate images.
    `lit_gans.load`, all commands and `init_from` accept the folder.

    Args:
        checkpoint: checkpoint that `read_checkpoint` has returned.
        folder: folder to write to.
        weights: `ema` writes the averaged generator as the generator; `raw` omits the average; null writes both the
            generator and the average.
        dtype: data type of the weights. `float16` halves the file size, and weights are converted to float32 when
            loaded.
        optimizers: whether to also write `training.pt`, so that `resume` continues as if the run had not ended.
        license: identifier of the weights' license on the Hub; null uses the license of the training data.

    Returns:
        The folder.

    Raises:
        RefusedInput: averaged weights are requested but do not exist; a weight is too large for float16; `license` is
            not an identifier; the networks do not fit their class; the folder has files of these names that no export
            has written; or `optimizers` is set together with `weights` or with a `dtype` other than float32.
    """
    refuse_license(license)
    if optimizers and (weights is not None or dtype != "float32"):
        raise RefusedInput("optimizers=true requires all networks in float32: leave out weights= and dtype=.")
    config, tensors, rest = split(_with_selected_weights(checkpoint, weights))
    config[RECORD] = record_of(checkpoint, weights, license)
    if dtype == "float16":
        tensors = {name: to_float16(name, value) for name, value in tensors.items()}
    # copies, because safetensors does not support tensors that share memory
    copies = {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    samples = _samples(joined(config, tensors, {}))
    folder = Path(folder)
    refuse_other_files(folder, (WEIGHTS, CONFIG, CARD, SAMPLES, TRAINING), read_config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRAINING).unlink(missing_ok=True)  # an existing file would belong to different networks
    with replacing(folder / WEIGHTS) as part:
        save_file(copies, part, metadata={"format": "pt"})
    for name in (CARD, SAMPLES):  # existing files would describe different networks
        (folder / name).unlink(missing_ok=True)
    write_file(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    if samples is not None:
        with replacing(folder / SAMPLES, unfinished(folder / SAMPLES).with_suffix(Path(SAMPLES).suffix)) as part:
            write_grid(samples[0], part, samples[1])
    networks = dict.fromkeys(name.partition(".")[0] for name in tensors)
    write_file(folder / CARD, card_of_networks(config, networks, dtype, optimizers, samples is not None))
    if optimizers:
        with replacing(folder / TRAINING) as part:
            torch.save(rest | {NETWORKS: networks_digest(tensors)}, part)
    return folder


def refuse_other_files(folder: Path, names: Iterable[str], read: Callable[[Path], Any]) -> None:
    """Raises `RefusedInput` if an export would replace files that no export has written, and logs all other files.

    Args:
        folder: folder of the export.
        names: names of the files that the export writes.
        read: function that reads the configuration in a folder, and refuses one that no export has written.
    """
    others = [name for name in names if (folder / name).exists()]
    if not others:
        return
    try:
        read(folder)
    except RefusedInput:
        raise RefusedInput(
            f"{folder} has {', '.join(others)}, which would be replaced: choose another folder (output=)."
        ) from None
    logger.info("%s: %s of an earlier export are replaced or removed", folder, ", ".join(others))


def write_file(path: Path, text: str) -> None:
    """Writes a text file atomically. Surrogates, which UTF-8 cannot encode, become escape sequences."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def _samples(checkpoint: dict[str, Any]) -> tuple[torch.Tensor, int] | None:
    """Returns samples of the exported weights and the columns of their grid, or None for a model without a grid.

    A model that translates images has no grid, because the grid would contain images of the training data. A model of
    points has no grid either.
    """
    with refusing("the checkpoint does not fit its class"):
        module = class_of(checkpoint[FORMAT_KEY]["class_path"], "the checkpoint").from_checkpoint(checkpoint)
    from_latents = type(module).sampling_inputs is AdversarialModule.sampling_inputs
    if not from_latents or module.image_size == 1:
        return None
    return module.sample_grid(_NUM_SAMPLES, seed=0)


def _with_selected_weights(checkpoint: dict[str, Any], weights: Weights | None) -> dict[str, Any]:
    """Returns a checkpoint with only the trained or only the averaged generator. None selects both."""
    if weights is None:
        return checkpoint
    networks = {key: value for key, value in checkpoint.items() if key != EMA_KEY}
    if weights == "raw":
        return networks
    if EMA_KEY not in checkpoint:
        raise RefusedInput("weights=ema: this checkpoint does not contain averaged weights; use weights=raw.")
    average = {f"generator.{name}": value for name, value in checkpoint[EMA_KEY]["state_dict"].items()}
    return networks | {"state_dict": checkpoint["state_dict"] | average}


def to_float16(name: str, value: torch.Tensor) -> torch.Tensor:
    """Converts a tensor of floating-point numbers to float16. Raises `RefusedInput` if a value is too large."""
    if not value.is_floating_point():
        return value
    half = value.half()
    if not half.isfinite().all():
        raise RefusedInput(
            f"dtype=float16: {name} has values beyond 65504, the largest value of float16; use dtype=float32."
        )
    return half
