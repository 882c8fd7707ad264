"""From a checkpoint to its module, whatever its class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule
from torch import nn

from lit_gans.checkpoints.format import FORMAT_KEY, class_path, from_plain, read_checkpoint
from lit_gans.checkpoints.renamed import current_path, current_paths
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import IMPORT_VARIABLE, classes, gans
from lit_gans.metrics.scores.score import Score
from lit_gans.training.adversarial import AdversarialModule


def load(path: str | Path) -> AdversarialModule:
    """Returns the module of a checkpoint, on the CPU, with its averaged weights, ready for `.sample()`.

    Args:
        path: of the checkpoint, or the folder of a run, whose best checkpoint is taken, else the last one.

    Raises:
        RefusedInput: the file is missing or damaged, or its class is neither registered nor imported in this process.
            Loading imports no code that the checkpoint names.
    """
    checkpoint = read_checkpoint(path)
    made_by = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    if made_by is None:
        raise RefusedInput(f"{path} was not made by lit_gans: it does not say its class.")
    cls = _known(current_path(made_by))
    if cls is None:
        raise RefusedInput(
            f"{path} was made by {current_path(made_by)}, which is neither imported here nor a registered GAN"
            f" ({', '.join(sorted(gans()))}): import it first, or name its module in {IMPORT_VARIABLE}."
        )
    settings = {name: from_plain(value) for name, value in checkpoint["hyper_parameters"].items()}
    module = cls(**settings)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    return module


def _known(path: str) -> type[AdversarialModule] | None:
    """Returns the class of that path: a registered GAN, or a class that this process has defined or imported already,
    of two (a notebook's cell that ran twice) the newer one.
    """
    known = {class_path(cls): cls for cls in (*_subclasses(AdversarialModule), *gans().values())}
    return known.get(path)


def _subclasses(cls: type[AdversarialModule]) -> Iterator[type[AdversarialModule]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


# what the configuration in a checkpoint may name: package and base class
_PARTS = (
    ("lit_gans.data", LightningDataModule),
    ("lit_gans.callbacks", Callback),
    ("lit_gans.metrics.extractors", nn.Module),
    ("lit_gans.metrics.scores", Score),
)


def trained_with(config: dict[str, Any], key: str) -> Any:
    """Returns the object, such as `data` or `metrics`, of the configuration that a checkpoint holds.

    Raises:
        RefusedInput: it holds none, or names a class that is not registered: checkpoints do not choose what is called.
    """
    from lit_gans.config.build import to_class_path
    from lit_gans.config.signatures import construct

    node = current_paths(config.get(key))
    if node is None:
        whose = "the checkpoint does not say its" if config else "nothing says the"
        raise RefusedInput(f"{whose} {key}: add {key}=NAME, for example {key}=digits.")
    known = {class_path(cls) for package, base in _PARTS for cls in classes(package, base).values()}
    for path in _targets(node):
        if path not in known:
            raise RefusedInput(
                f"the checkpoint's {key} name the class {path}, which is not registered: add {key}=NAME, or name its"
                f" module in {IMPORT_VARIABLE} if you trust it."
            )
    return construct(to_class_path(node), key)


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
