"""Configuration groups from classes: each option is the signature of one class, read lazily.

Hydra queries its config sources for `group/option`; this source uses the registry, so that a class needs no YAML file:

    model/NAME, data/NAME       a GAN or a data source, with shared sizes and seed
    schedule/NAME, score/NAME
    optimizer/NAME              an optimizer of torch.optim, with its arguments and their defaults
    GROUP/_schema/NAME          the bare signature, as a base for YAML files (also for model and data)
"""

from __future__ import annotations

import importlib
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from lit_gans.common._compat.hydra import check_files
from lit_gans.config.registry import classes, find, is_gan
from lit_gans.config.signatures import schema
from lit_gans.training.optim import Optimizer, optimizer_names

SCHEME = "lit-gans"
SEARCH_PATH = f"{SCHEME}://classes"

_GROUPS = {  # group: package, and the base class by its path
    "model": ("lit_gans.models", "lit_gans.training.adversarial.AdversarialModule"),
    "data": ("lit_gans.data.sources", "lightning.pytorch.LightningDataModule"),
    "schedule": ("lit_gans.training.schedules", "lit_gans.training.schedules.Schedule"),
    "score": ("lit_gans.metrics.scores", "lit_gans.metrics.scores.base.FeatureScore"),
    "callbacks/_schema": ("lit_gans.callbacks", "lightning.pytorch.Callback"),
    "metrics/_schema": ("lit_gans.metrics.extractors", "lit_gans.metrics.extractors.base.Extractor"),
    "logger/_schema": ("lit_gans.callbacks", "lightning.pytorch.loggers.Logger"),
    "strategy/_schema": ("lit_gans.strategies", "lightning.pytorch.strategies.Strategy"),
}
_OTHERS = {  # classes of other libraries
    "trainer/_schema": {"trainer": "lightning.pytorch.Trainer"},
    "logger/_schema": {
        "tensorboard": "lightning.pytorch.loggers.TensorBoardLogger",
        "wandb": "lightning.pytorch.loggers.WandbLogger",
        "mlflow": "lightning.pytorch.loggers.MLFlowLogger",
    },
}
_SHARED = {  # values shared across the configuration, by group and argument
    "model": {"image_size": "${data.image_size}", "channels": "${data.channels}", "seed": "${seed}"},
    "data": {"seed": "${seed}"},
}
UNSET = {  # arguments that no configuration sets, by group: an `Evaluator` sets those of its scores
    "score": ("feature", "normalize", "reset_real_features", "seed", "input_img_size"),
}


class ClassSource(ConfigSource):
    """Config source of the groups that are generated from classes."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        path = config_path.strip("/")
        return any(f"{group}/".startswith(f"{path}/") for group in (*_GROUPS, *_OTHERS, "optimizer"))

    def is_config(self, config_path: str) -> bool:
        return option(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return [] if results_filter == ObjectType.GROUP else options(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        cls = option(config_path)
        assert cls is not None, f"{config_path}: Hydra loads what is_config knows"
        values = schema(cls)
        shared = _SHARED.get(config_path.partition("/")[0], {}) if "/_schema/" not in config_path else {}
        values |= {name: value for name, value in shared.items() if name in values}
        values = {
            name: value for name, value in values.items() if name not in UNSET.get(config_path.partition("/")[0], ())
        }
        return ConfigResult(
            provider=self.provider, path=self.full_path(), config=OmegaConf.create(values), header={"package": None}
        )


def register() -> None:
    """Registers the source with Hydra, and that of files, which checks them."""
    Plugins.instance().register(ClassSource)
    check_files()


def options(group: str) -> list[str]:
    """Returns the names of a group's options that are generated from classes."""
    group = _bare(group.strip("/"))
    if group == "optimizer":
        return [name.lower() for name in optimizer_names()]
    names = list(_OTHERS.get(group, {}))
    if group in _GROUPS:
        package, base = _GROUPS[group]
        names += [name for name, cls in classes(package, _import(base)).items() if _offered(group, cls)]
    return sorted(names)


def option(path: str) -> type | Optimizer | None:
    """Returns the class of an option, `group/name`, or the value of an optimizer, or None if there is none."""
    group, _, name = path.strip("/").removesuffix(".yaml").rpartition("/")
    group = _bare(group)
    if group == "optimizer":
        return next((Optimizer(each) for each in optimizer_names() if each.lower() == name), None)
    if name in _OTHERS.get(group, {}):
        return _import(_OTHERS[group][name])
    if group not in _GROUPS:
        return None
    package, base = _GROUPS[group]
    cls = find(package, _import(base), name)
    return cls if cls is not None and _offered(group, cls) else None


def _offered(group: str, cls: type) -> bool:
    """Whether a registered class is an option rather than a base class."""
    if group == "model":
        return is_gan(cls)
    if group == "data":
        package, base = _GROUPS[group]
        ours = (other for other in classes(package, _import(base)).values() if other.__module__.startswith(package))
        return not any(issubclass(other, cls) and other is not cls for other in ours)
    return True


def _bare(group: str) -> str:
    """Returns the group without `/_schema` if both exist."""
    parent = group.removesuffix("/_schema")
    return parent if parent in _GROUPS else group


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
