"""Generators outside checkpoints: a folder of safetensors and JSON, in the layout of the Hugging Face Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from lit_gans.checkpoints.format import FORMAT_VERSION, class_path, from_plain, to_plain
from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.common.memory import made_if_verified
from lit_gans.common.reading import read_bounded, refuse_large_file
from lit_gans.config.load import class_of
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.sampling import Weights

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
_KINDS = {"class_path": str, "hyper_parameters": dict, "format_version": int}  # of the configuration's values
_MOST_BYTES, _MOST_TIMES = 2**28, 64  # of the discriminators, beyond and for each byte of the generator's weights


def save_generator(module: AdversarialModule, folder: str | Path, weights: Weights | None = None) -> Path:
    """Writes a generator to a folder: `model.safetensors`, `config.json`, and `README.md`, a model card.

    The folder can be uploaded to the Hugging Face Hub as it is; `load_generator` reads it.

    Args:
        module: module of a trained model.
        folder: folder to write to; files of the same names are replaced.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.

    Returns:
        The folder.

    Raises:
        RefusedInput: averaged weights are requested but do not exist.
    """
    tensors = {  # copies, since safetensors refuses shared memory
        name: value.cpu().clone(memory_format=torch.contiguous_format)
        for name, value in module.sampling_generator(weights).state_dict().items()
    }
    config = {
        "library_name": "lit-gans",
        "format_version": FORMAT_VERSION,
        "class_path": class_path(type(module)),
        "hyper_parameters": to_plain(dict(module.hparams)),
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as part:
        save_file(tensors, part, metadata={"format": "pt"})
    for name, text in {CONFIG: json.dumps(config, indent=2) + "\n", CARD: _card(module)}.items():
        with replacing(folder / name) as part:
            part.write_text(text)
    return folder


def load_generator(place: str | Path, cache: str | Path | None = None) -> AdversarialModule:
    """Loads what `save_generator` wrote, on the CPU, ready for `.sample()`; its discriminators are untrained.

    Args:
        place: folder, or `owner/name` of a repository on the Hugging Face Hub (extra `hub`).
        cache: folder of downloads from the Hub; null uses its default.

    Raises:
        RefusedInput: a file is missing, damaged or too large, or the class is neither registered nor imported in this
            process. No code from the files is executed.
    """
    folder = Path(place) if Path(place).is_dir() else _downloaded(str(place), cache)
    config = _read_config(folder / CONFIG)
    refuse_large_file(folder / WEIGHTS)
    with refusing(f"{folder / WEIGHTS} cannot be read as safetensors"):
        state = load_file(folder / WEIGHTS)
    cls = class_of(config["class_path"], folder)
    with refusing(f"{folder / CONFIG} describes no generator"):
        module = made_if_verified(
            lambda: cls(**{name: from_plain(value) for name, value in config["hyper_parameters"].items()}),
            lambda sketch: _refuse_other_shapes(sketch, state, folder),
        )
    module.generator.load_state_dict(state)
    return module.eval()


def is_generator(folder: str | Path) -> bool:
    """Returns whether a folder has the files that `save_generator` writes."""
    return (Path(folder) / WEIGHTS).is_file() and (Path(folder) / CONFIG).is_file()


def _refuse_other_shapes(module: AdversarialModule, state: dict[str, torch.Tensor], folder: Path) -> None:
    """Raises `RefusedInput` if the weights are not those of the module, or its discriminators are far larger."""
    ours, theirs = (
        {name: tuple(value.shape) for name, value in tensors.items()}
        for tensors in (module.generator.state_dict(), state)
    )
    if ours != theirs:
        first = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
        raise RefusedInput(
            f"{folder / WEIGHTS} does not fit {CONFIG} beside it: {first} is {theirs.get(first)} there, expected"
            f" {ours.get(first)}; export the generator again."
        )
    needed, given = (sum(x.nbytes for x in tensors.values()) for tensors in (module.state_dict(), state))
    if needed > _MOST_BYTES + _MOST_TIMES * given:
        raise RefusedInput(
            f"{folder / CONFIG} asks for {needed:,} bytes of discriminators: far more than its generator has."
        )


def _read_config(path: Path) -> dict[str, Any]:
    with refusing(f"{path} cannot be read as JSON"):
        config = json.loads(read_bounded(path))
    for name, kind in _KINDS.items():
        if not (isinstance(config, dict) and isinstance(config.get(name), kind)):
            raise RefusedInput(
                f"{path} describes no generator of lit_gans: {name} is no {kind.__name__}; give a folder of lit-gans"
                " export."
            )
    if config["format_version"] > FORMAT_VERSION:
        raise RefusedInput(
            f"{path} has format {config['format_version']}, this lit_gans reads up to {FORMAT_VERSION}: upgrade."
        )
    return config


def _downloaded(name: str, cache: str | Path | None) -> Path:
    hub = import_extra("huggingface_hub", "hub")
    with refusing(f"{name} is neither a folder nor a repository that the Hub delivers"):
        return Path(hub.snapshot_download(name, allow_patterns=[WEIGHTS, CONFIG], cache_dir=cache))


def _card(module: AdversarialModule) -> str:
    """Returns the model card, whose header the Hub reads."""
    return f"""---
library_name: lit-gans
pipeline_tag: unconditional-image-generation
tags: [gan, {type(module).__name__.lower()}]
---

# {type(module).__name__} generator

Trained with lit_gans. `{WEIGHTS}` contains the generator's weights, `{CONFIG}` the class and its arguments.

```python
from lit_gans.export.safetensors import load_generator

images = load_generator("FOLDER or owner/name").sample(16, seed=0)  # (16, channels, height, width) in [0, 1]
```
"""
