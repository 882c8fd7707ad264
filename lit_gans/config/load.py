"""Loading of modules of any class from checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lit_gans.checkpoints.format import FORMAT_KEY, class_path, from_plain, read_checkpoint, weights_bytes
from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.common.memory import refused_if_too_large
from lit_gans.config.registry import IMPORT_VARIABLE, gans
from lit_gans.training.adversarial import AdversarialModule

logger = logging.getLogger(__name__)


def load(path: str | Path) -> AdversarialModule:
    """Loads the module of a checkpoint on the CPU, with its averaged weights, ready for `.sample()`.

    Args:
        path: path of a checkpoint, or folder of a run, which loads its best checkpoint, or the last if there is none.

    Raises:
        RefusedInput: the file is missing or damaged, or its class is neither registered nor imported in this process.
            Loading never imports code that the checkpoint names.
    """
    checkpoint = read_checkpoint(path)
    if "class_path" not in checkpoint.get(FORMAT_KEY, {}):
        raise RefusedInput(
            f"{path} was not made by lit_gans: it does not say its class; load its weights"
            " with torch.load and load_state_dict."
        )
    logger.info("iteration   %s", checkpoint.get("global_step"))
    try:
        return _loaded(checkpoint, str(path))
    except RefusedInput:
        raise
    except Exception as error:  # a hostile file may raise anything
        raise RefusedInput(f"{path} does not fit the class that it names: {one_line(error)}.") from error


def _loaded(checkpoint: dict[str, Any], path: str) -> AdversarialModule:
    with refused_if_too_large(f"the networks that {path} describes", weights_bytes(checkpoint)):
        module = module_of(checkpoint[FORMAT_KEY]["class_path"], checkpoint["hyper_parameters"], path)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    return module


def module_of(made_by: str, hyper_parameters: dict[str, Any], source: str) -> AdversarialModule:
    """Constructs a module with new networks from the path of its class and its plain hyperparameters.

    Args:
        made_by: path of the class.
        hyper_parameters: arguments of the class in plain containers.
        source: where they come from, for the error message.

    Raises:
        RefusedInput: the class is neither registered nor imported in this process.
    """
    cls = _known(made_by)
    if cls is None:
        raise RefusedInput(
            f"{source} was made by {made_by}, which is neither imported here nor a registered GAN"
            f" ({', '.join(sorted(gans()))}): import it first, or name its module in {IMPORT_VARIABLE}."
        )
    return cls(**{name: from_plain(value) for name, value in hyper_parameters.items()})


def _known(path: str) -> type[AdversarialModule] | None:
    """Returns the class with a given path: a registered GAN, or a class that this process has already defined or
    imported; the latest definition if there are several, as after running a notebook cell twice.
    """
    known = {class_path(cls): cls for cls in (*_subclasses(AdversarialModule), *gans().values())}
    return known.get(path)


def _subclasses(cls: type[AdversarialModule]) -> Iterator[type[AdversarialModule]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
