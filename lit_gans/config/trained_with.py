"""Construction of data and metrics from the configuration stored in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningDataModule
from torch import nn

from lit_gans.checkpoints.format import FORMAT_KEY, class_path
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import IMPORT_VARIABLE, classes
from lit_gans.config.signatures import construct
from lit_gans.metrics.scores.base import FeatureScore

# packages and base classes that a configuration in a checkpoint may refer to
_NAMEABLE = (
    ("lit_gans.data", LightningDataModule),
    ("lit_gans.callbacks", Callback),
    ("lit_gans.metrics.extractors", nn.Module),
    ("lit_gans.metrics.scores", FeatureScore),
)


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
