"""Exports networks to a folder of safetensors and JSON files, in the layout of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from lit_gans.checkpoints.exported import CARD, CONFIG, NETWORKS, TRAINING, WEIGHTS, networks_digest
from lit_gans.checkpoints.format import EMA_KEY, split
from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import class_of
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
from lit_gans.models.cyclegan import CycleGAN
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.sampling import Weights
from lit_gans.training.translator import Translator

Dtype = Literal["float32", "float16"]


def save_networks(
    checkpoint: dict[str, Any],
    folder: str | Path,
    weights: Weights | None = None,
    dtype: Dtype = "float32",
    optimizers: bool = False,
) -> Path:
    """Writes the networks of a checkpoint to a folder that can be uploaded to the Hugging Face Hub without changes.

    `model.safetensors` contains the weights, `config.json` contains the class and its arguments, and `README.md` is a
    model card. `lit_gans.load`, all commands and `init_from` accept the folder as a checkpoint.

    Args:
        checkpoint: checkpoint that `read_checkpoint` has returned.
        folder: folder to write to. Existing files with the same names are replaced.
        weights: `ema` writes the averaged generator as the generator; `raw` omits the average; null writes both the
            generator and the average.
        dtype: data type of the weights. `float16` halves the file size, and weights are converted to float32 when they
            are loaded.
        optimizers: whether to also write `training.pt`, so that `resume` continues as if the run had not ended.

    Returns:
        The folder.

    Raises:
        RefusedInput: averaged weights are requested but do not exist; a weight is too large for float16; or
            `optimizers` is set together with `weights` or with a `dtype` other than float32.
    """
    if optimizers and (weights is not None or dtype != "float32"):
        raise RefusedInput("optimizers=true requires all networks in float32: leave out weights= and dtype=.")
    config, tensors, rest = split(_with_selected_weights(checkpoint, weights))
    if dtype == "float16":
        tensors = {name: to_float16(name, value) for name, value in tensors.items()}
    # copies, because safetensors does not support tensors that share memory
    copies = {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRAINING).unlink(missing_ok=True)  # an existing file would belong to different networks
    with replacing(folder / WEIGHTS) as part:
        save_file(copies, part, metadata={"format": "pt"})
    card = _card(config, dict.fromkeys(name.partition(".")[0] for name in tensors), optimizers)
    for name, text in {CONFIG: json.dumps(config, indent=2) + "\n", CARD: card}.items():
        with replacing(folder / name) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
    if optimizers:
        with replacing(folder / TRAINING) as part:
            torch.save(rest | {NETWORKS: networks_digest(tensors)}, part)
    return folder


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


def _card(config: dict[str, Any], networks: Iterable[str], optimizers: bool) -> str:
    """Returns the model card, which describes the folder's contents and their use. The Hub reads the card's header."""
    gan_class = class_of(config["class_path"], CONFIG)
    name = next((name for name, known in gans().items() if known is gan_class), gan_class.__name__.lower())
    translates = issubclass(gan_class, Translator)
    folders = {CycleGAN: "unpaired", Pix2Pix: "paired_folder"}
    data = next((data for model, data in folders.items() if issubclass(gan_class, model)), "folder")
    settings = " ".join([f"model={name}", *_settings(config, gan_class)])
    call = "translate(images)" if translates else "sample(16, seed=0)"
    text = f"""---
library_name: lit-gans
pipeline_tag: {"image-to-image" if translates else "unconditional-image-generation"}
tags: [gan, {name}]
---

# {gan_class.__name__}

Trained with lit_gans for {config["iteration"]:,} iterations. `{WEIGHTS}` contains the networks
{", ".join(f"`{network}`" for network in networks)}. `{CONFIG}` contains the class and its arguments.

```python
from lit_gans import load

images = load("FOLDER or hf://owner/name").{call}  # (n, channels, height, width) in [0, 1]
```

To start a training run on other images with these networks:

```bash
lit-gans train {settings} data={data} data.root=IMAGES init_from="FOLDER or hf://owner/name"
```
"""
    if optimizers:
        text += f"""
`{TRAINING}` contains the optimizer states and the settings of the run, including its paths. With the same settings and
data, `lit-gans train ... resume=FOLDER` continues as if the run had not ended.
"""
    return text


def _settings(config: dict[str, Any], gan_class: type) -> Iterator[str]:
    """Yields the command line arguments that create networks of the same sizes."""
    defaults = schema(gan_class)
    for name, value in config["hyper_parameters"].items():
        text = str(value).lower().replace(" ", "")
        if name in ("image_size", "channels"):
            yield f"data.{name}={text}"
        elif name != "seed" and isinstance(value, int | float | str | list) and value != defaults.get(name):
            yield f"model.{name}={text}"
