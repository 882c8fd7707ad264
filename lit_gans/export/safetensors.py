"""Networks outside checkpoints: a folder of safetensors and JSON, in the layout of the Hugging Face Hub."""

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
    """Writes the networks of a checkpoint to a folder that can be uploaded to the Hugging Face Hub as it is.

    `model.safetensors` has the weights, `config.json` the class and its arguments, and `README.md` is a model card.
    `lit_gans.load`, every command and `init_from` take the folder as a checkpoint.

    Args:
        checkpoint: what `read_checkpoint` returns.
        folder: folder to write to; files of the same names are replaced.
        weights: `ema` writes the averaged generator as the generator, `raw` leaves the average out; null writes both.
        dtype: `float16` halves the size of float32; weights are converted back when they are loaded.
        optimizers: whether to write `training.pt` too, so that `resume` goes on as if the run had not ended.

    Returns:
        The folder.

    Raises:
        RefusedInput: averaged weights are requested but do not exist, a weight is too large for float16, or optimizers
            are written with other networks than those they have trained.
    """
    if optimizers and (weights is not None or dtype != "float32"):
        raise RefusedInput("optimizers=true needs all networks in float32: leave out weights= and dtype=.")
    config, tensors, rest = split(_chosen(checkpoint, weights))
    if dtype == "float16":
        tensors = {name: _halved(name, value) for name, value in tensors.items()}
    # copies, since safetensors refuses shared memory
    copies = {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRAINING).unlink(missing_ok=True)  # of other networks
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


def _chosen(checkpoint: dict[str, Any], weights: Weights | None) -> dict[str, Any]:
    """Returns a checkpoint with the trained or the averaged generator alone."""
    if weights is None:
        return checkpoint
    networks = {key: value for key, value in checkpoint.items() if key != EMA_KEY}
    if weights == "raw":
        return networks
    if EMA_KEY not in checkpoint:
        raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
    average = {f"generator.{name}": value for name, value in checkpoint[EMA_KEY]["state_dict"].items()}
    return networks | {"state_dict": checkpoint["state_dict"] | average}


def _halved(name: str, value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return value
    half = value.half()
    if not half.isfinite().all():
        raise RefusedInput(f"dtype=float16: {name} has values beyond 65504, the largest of float16; use float32.")
    return half


def _card(config: dict[str, Any], networks: Iterable[str], optimizers: bool) -> str:
    """Returns the model card, whose header the Hub reads: what the folder has, and how others go on with it."""
    made_by = class_of(config["class_path"], CONFIG)
    name = next((name for name, known in gans().items() if known is made_by), made_by.__name__.lower())
    translates = issubclass(made_by, Translator)
    folders = {CycleGAN: "unpaired", Pix2Pix: "paired_folder"}
    data = next((data for model, data in folders.items() if issubclass(made_by, model)), "folder")
    settings = " ".join([f"model={name}", *_settings(config, made_by)])
    use = "translate(images)" if translates else "sample(16, seed=0)"
    text = f"""---
library_name: lit-gans
pipeline_tag: {"image-to-image" if translates else "unconditional-image-generation"}
tags: [gan, {name}]
---

# {made_by.__name__}

Trained with lit_gans for {config["iteration"]:,} iterations. `{WEIGHTS}` has the networks
{", ".join(f"`{network}`" for network in networks)}; `{CONFIG}` has the class and its arguments.

```python
from lit_gans import load

images = load("FOLDER or hf://owner/name").{use}  # (n, channels, height, width) in [0, 1]
```

To begin a run on other images with these networks:

```bash
lit-gans train {settings} data={data} data.root=IMAGES init_from="FOLDER or hf://owner/name"
```
"""
    if optimizers:
        text += f"""
`{TRAINING}` has the optimizers and the settings of the run, its paths included. With those settings and the same data,
`lit-gans train ... resume=FOLDER` goes on as if the run had not ended.
"""
    return text


def _settings(config: dict[str, Any], made_by: type) -> Iterator[str]:
    """Yields the keys of a command line that makes networks of the same sizes."""
    defaults = schema(made_by)
    for name, value in config["hyper_parameters"].items():
        text = str(value).lower().replace(" ", "")
        if name in ("image_size", "channels"):
            yield f"data.{name}={text}"
        elif name != "seed" and isinstance(value, int | float | str | list) and value != defaults.get(name):
            yield f"model.{name}={text}"
