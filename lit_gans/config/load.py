"""Constructs the module, the data and the metrics from the contents of a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule
from torch import nn

from lit_gans.checkpoints.format import FORMAT_KEY, class_path, read_checkpoint
from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.config.registry import IMPORT_VARIABLE, classes, gans
from lit_gans.config.signatures import construct
from lit_gans.metrics.scores.base import FeatureScore
from lit_gans.training.module import AdversarialModule

logger = logging.getLogger(__name__)

# packages and base classes that a configuration in a checkpoint may refer to
_NAMEABLE = (
    ("lit_gans.data", LightningDataModule),
    ("lit_gans.callbacks", Callback),
    ("lit_gans.metrics.extractors", nn.Module),
    ("lit_gans.metrics.scores", FeatureScore),
)


def load(path: str | Path) -> AdversarialModule:
    """Loads the module of a checkpoint on the CPU, including its averaged weights, ready for `.sample()`.

    Loading never imports code that the checkpoint refers to.

    Args:
        path: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; `zoo/NAME`; or
            `hf://owner/name`, a repository of the Hugging Face Hub. For a run folder, the best checkpoint is loaded, or
            else the last checkpoint.

    Raises:
        RefusedInput: If the file is missing or damaged, or if its class is neither registered nor imported in this
            process.
    """
    return module_from(read_checkpoint(path), path)


def module_from(checkpoint: dict[str, Any], path: str | Path) -> AdversarialModule:
    """Returns the module of a checkpoint whose contents have been read, see `load`.

    Args:
        checkpoint: contents of the checkpoint.
        path: path of the checkpoint, for error messages.

    Raises:
        RefusedInput: If the checkpoint does not contain the path of its class, or does not fit its class.
    """
    path_of_class = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    if path_of_class is None:
        raise RefusedInput(
            f"{path} was not saved by lit_gans: it does not contain the path of its class; load its weights with"
            " torch.load and load_state_dict."
        )
    logger.info("iteration   %s", checkpoint.get("global_step"))
    try:
        return class_of(path_of_class, path).from_checkpoint(checkpoint)
    except RefusedInput:
        raise
    except Exception as error:  # a hostile file can raise an error of any type
        raise RefusedInput(f"{path} does not fit its class: {one_line(error)}.") from error


def class_of(made_by: str, source: str | Path) -> type[AdversarialModule]:
    """Returns the class with a given path, which must be registered or already imported in this process.

    If a class was defined several times, for example by running a notebook cell twice, returns the latest definition.

    Args:
        made_by: path of the class.
        source: file that contains the path, for the error message.

    Raises:
        RefusedInput: If the class is neither registered nor imported in this process.
    """
    known = {class_path(cls): cls for cls in (*_subclasses(AdversarialModule), *gans().values())}
    if made_by not in known:
        raise RefusedInput(
            f"{source} contains a module of {made_by}, which is neither imported here nor a registered GAN"
            f" ({', '.join(sorted(gans()))}): import it first, or set {IMPORT_VARIABLE} to its module."
        )
    return known[made_by]


def _subclasses(cls: type[AdversarialModule]) -> Iterator[type[AdversarialModule]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def config_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration in a checkpoint, or an empty dict if the checkpoint has no configuration."""
    config: dict[str, Any] = checkpoint.get(FORMAT_KEY, {}).get("config", {})
    return config


def trained_with(checkpoint: dict[str, Any], key: str, base: type = object) -> Any:
    """Constructs an object, such as `data` or `metrics`, from the configuration stored in a checkpoint.

    Only registered classes are used, because a checkpoint must not be able to execute arbitrary code.

    Args:
        checkpoint: contents of the checkpoint.
        key: key of the object in the configuration.
        base: class that the object's class must be derived from.

    Raises:
        RefusedInput: If the configuration does not contain the object, or refers to a class that is not registered.
    """
    node = config_of(checkpoint).get(key)
    if node is None:
        problem = f"the checkpoint does not contain its {key}" if checkpoint else f"{key}= is not set"
        example = {"metrics": ", or metrics=efficientnet_lite0 for other images"}.get(key, "")
        raise RefusedInput(f"{problem}: add {key}=NAME, for example {key}=digits{example}.")
    known = {class_path(cls) for package, kind in _NAMEABLE for cls in classes(package, kind).values()}
    for path in _targets(node):
        if path not in known:
            raise RefusedInput(
                f"the checkpoint's {key} use the class {path}, which is not registered: add {key}=NAME, or set"
                f" {IMPORT_VARIABLE} to its module if you trust it."
            )
    return construct(node, key, base)


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("_target_", "class_path"):
                yield str(value)
            else:
                yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)
