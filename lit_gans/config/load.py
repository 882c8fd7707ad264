"""What a checkpoint holds: its module, of any class, and the data and metrics of its training."""

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
    """Loads the module of a checkpoint on the CPU, with its averaged weights, ready for `.sample()`.

    Args:
        path: path of a checkpoint; folder of a run, which loads its best checkpoint, or the last if there is none;
            folder of `lit-gans export`; `zoo/NAME`; or `hf://owner/name`, a repository of the Hugging Face Hub.

    Raises:
        RefusedInput: the file is missing or damaged, or its class is neither registered nor imported in this process.
            Loading never imports code that the checkpoint names.
    """
    return module_from(read_checkpoint(path), path)


def module_from(checkpoint: dict[str, Any], path: str | Path) -> AdversarialModule:
    """Returns the module of a checkpoint that was read, see `load`.

    Args:
        checkpoint: content of the checkpoint.
        path: where it was read, for error messages.

    Raises:
        RefusedInput: the checkpoint does not name its class, or does not fit it.
    """
    made_by = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    if made_by is None:
        raise RefusedInput(
            f"{path} was not made by lit_gans: it does not say its class; load its weights"
            " with torch.load and load_state_dict."
        )
    logger.info("iteration   %s", checkpoint.get("global_step"))
    try:
        return class_of(made_by, path).from_checkpoint(checkpoint)
    except RefusedInput:
        raise
    except Exception as error:  # a hostile file may raise anything
        raise RefusedInput(f"{path} does not fit the class that it names: {one_line(error)}.") from error


def class_of(made_by: str, source: str | Path) -> type[AdversarialModule]:
    """Returns the class with a given path: a registered GAN, or a class that this process has already defined or
    imported; the latest definition if there are several, as after running a notebook cell twice.

    Args:
        made_by: path of the class.
        source: file that names it, for the error message.

    Raises:
        RefusedInput: the class is neither registered nor imported in this process.
    """
    known = {class_path(cls): cls for cls in (*_subclasses(AdversarialModule), *gans().values())}
    if made_by not in known:
        raise RefusedInput(
            f"{source} was made by {made_by}, which is neither imported here nor a registered GAN"
            f" ({', '.join(sorted(gans()))}): import it first, or name its module in {IMPORT_VARIABLE}."
        )
    return known[made_by]


def _subclasses(cls: type[AdversarialModule]) -> Iterator[type[AdversarialModule]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def config_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration that the content of a checkpoint stores; an empty one if there is none."""
    found: dict[str, Any] = checkpoint.get(FORMAT_KEY, {}).get("config", {})
    return found


def trained_with(checkpoint: dict[str, Any], key: str, base: type = object) -> Any:
    """Constructs an object, such as `data` or `metrics`, from the configuration stored in a checkpoint.

    Args:
        checkpoint: content of the checkpoint.
        key: name of the object.
        base: class that the object's class must be derived from.

    Raises:
        RefusedInput: the configuration has no such object, or names a class that is not registered: a checkpoint must
            not cause arbitrary code to be called.
    """
    node = config_of(checkpoint).get(key)
    if node is None:
        whose = "the checkpoint does not say its" if checkpoint else "nothing says the"
        example = {"metrics": ", metrics=efficientnet_lite0 for other images"}.get(key, "")
        raise RefusedInput(f"{whose} {key}: add {key}=NAME, for example {key}=digits{example}.")
    known = {class_path(cls) for package, kind in _NAMEABLE for cls in classes(package, kind).values()}
    for path in _targets(node):
        if path not in known:
            raise RefusedInput(
                f"the checkpoint's {key} name the class {path}, which is not registered: add {key}=NAME, or name its"
                f" module in {IMPORT_VARIABLE} if you trust it."
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
