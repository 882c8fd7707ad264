"""Configuration groups from classes: each option is the signature of one class, read lazily.

Hydra queries its config sources for `group/option`; this source uses the registry, so that a class needs no YAML file:

    model/NAME, data/NAME       a GAN or a data source, with shared sizes and seed
    schedule/NAME, score/NAME
    optimizer/NAME              an optimizer of torch.optim, with its arguments and their defaults
    GROUP/_schema/NAME          the bare signature, as a base for YAML files (also for model and data)
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from lit_gans.config.registry import classes, find, is_gan
from lit_gans.config.signatures import schema
from lit_gans.training.optim import Optimizer, optimizer_names

SCHEME = "lit-gans"
SEARCH_PATH = f"{SCHEME}://classes"


@dataclass(frozen=True)
class Group:
    """A group of options.

    Args:
        places: what is chosen, by the group with its place in the configuration.
        package: package of its classes, if it has any.
        base: path of their base class.
        others: paths of classes of other libraries, by name.
        files: whether the options are YAML files, and the classes are the schemas below them.
        node: node that an option sets, if its name is not that of the group.
    """

    places: dict[str, str]
    package: str = ""
    base: str = ""
    others: dict[str, str] = field(default_factory=dict)
    files: bool = False
    node: str = ""


_LOGGERS = "lightning.pytorch.loggers"
GROUPS = {
    "experiment": Group(
        {"experiment": "a tested training: model, data, metrics and values that differ from the defaults"}
    ),
    "model": Group({"model": "the GAN"}, "lit_gans.models", "lit_gans.training.adversarial.AdversarialModule"),
    "data": Group({"data": "the images"}, "lit_gans.data.sources", "lightning.pytorch.LightningDataModule"),
    "metrics": Group(
        {"metrics": "what to measure during training"},
        "lit_gans.metrics.extractors",
        "lit_gans.metrics.extractors.base.Extractor",
        files=True,
    ),
    "trainer": Group(
        {"trainer": "Lightning's Trainer: iterations, devices"},
        others={"trainer": "lightning.pytorch.Trainer"},
        files=True,
    ),
    "strategy": Group(
        {"strategy": "how to distribute the training over several devices"},
        "lit_gans.strategies",
        "lightning.pytorch.strategies.Strategy",
        files=True,
        node="trainer.strategy",
    ),
    "precision": Group({"precision": "numerical precision of the networks"}, node="trainer.precision"),
    "callbacks": Group(
        {"callbacks": "averaged weights, samples, checkpoints, early stopping"},
        "lit_gans.callbacks",
        "lightning.pytorch.Callback",
        files=True,
    ),
    "logger": Group(
        {"logger": "where values are logged"},
        "lit_gans.callbacks",
        f"{_LOGGERS}.Logger",
        {
            "tensorboard": f"{_LOGGERS}.TensorBoardLogger",
            "wandb": f"{_LOGGERS}.WandbLogger",
            "mlflow": f"{_LOGGERS}.MLFlowLogger",
        },
        files=True,
    ),
    "optimizer": Group(
        {
            "optimizer@model.generator_optimizer": "optimizer of the generator",
            "optimizer@model.discriminator_optimizer": "optimizer of each discriminator",
        }
    ),
    "schedule": Group(
        {
            "schedule@model.generator_optimizer.schedule": "learning-rate schedule of the generator",
            "schedule@model.discriminator_optimizer.schedule": "learning-rate schedule of the discriminators",
        },
        "lit_gans.training.schedules",
        "lit_gans.training.schedules.Schedule",
    ),
    "score": Group(
        {"score@metrics.scores.{kid,mifid,prdc}": "what to measure besides, for example score@metrics.scores.kid=kid"},
        "lit_gans.metrics.scores",
        "lit_gans.metrics.scores.base.FeatureScore",
    ),
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
        name, _, below = config_path.strip("/").partition("/")
        group = GROUPS.get(name)
        generated = group is not None and (group.package or group.others or name == "optimizer")
        return bool(generated) and below in ("", "_schema")

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
    """Registers the source with Hydra."""
    Plugins.instance().register(ClassSource)


def options(group: str) -> list[str]:
    """Returns the names of a group's options that are generated from classes."""
    if group == "optimizer":
        return [name.lower() for name in optimizer_names()]
    found = _of_classes(group)
    if found is None:
        return []
    offered = classes(found.package, _import(found.base)).items() if found.package else ()
    return sorted([*found.others, *(name for name, cls in offered if _offered(found, cls))])


def option(path: str) -> type | Optimizer | None:
    """Returns the class of an option, `group/name`, or the value of an optimizer, or None if there is none."""
    group, _, name = path.strip("/").removesuffix(".yaml").rpartition("/")
    if group == "optimizer":
        return next((Optimizer(each) for each in optimizer_names() if each.lower() == name), None)
    found = _of_classes(group)
    if found is None:
        return None
    if name in found.others:
        return _import(found.others[name])
    cls = find(found.package, _import(found.base), name) if found.package else None
    return cls if cls is not None and _offered(found, cls) else None


def _of_classes(path: str) -> Group | None:
    """Returns the group of classes at `NAME` or `NAME/_schema`, or None if there is none."""
    name, _, below = path.strip("/").partition("/")
    group = GROUPS.get(name)
    return group if group and below in (("_schema",) if group.files else ("", "_schema")) else None


def _offered(group: Group, cls: type) -> bool:
    """Whether a registered class is an option rather than a base class."""
    if group is GROUPS["model"]:
        return is_gan(cls)
    if group is GROUPS["data"]:
        found = classes(group.package, _import(group.base)).values()
        ours = [other for other in found if other.__module__.startswith(group.package)]
        return not any(issubclass(other, cls) and other is not cls for other in ours)
    return True


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
