"""Groups of the configuration: the one table of what can be chosen by name, and Hydra's source of these options.

Hydra queries its config sources for `group/option`; this source answers with the signature of a class, read when it is
asked for, so that a class needs no YAML file:

    model/NAME, data/NAME       a GAN or a data source, with shared sizes and seed
    schedule/NAME, score/NAME
    optimizer/NAME              an optimizer of torch.optim, with its arguments and their defaults
    GROUP/_schema/NAME          the bare signature, as a base for YAML files (also for model and data)
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from lit_gans.config.registry import classes, is_gan
from lit_gans.config.signatures import schema
from lit_gans.training.optim import Optimizer, optimizer_names

CONFIG_PACKAGE = "lit_gans.conf"
SCHEME = "lit-gans"
SEARCH_PATH = f"{SCHEME}://classes"  # the last one, so that users' files take precedence


@dataclass(frozen=True)
class Group:
    """A group of options.

    Args:
        places: what is chosen, by the group with its place in the configuration.
        package: package of its classes, if it has any.
        base: their base class, `module:name`.
        others: classes of other libraries, `module:name`, by name.
        has_files: whether the options are YAML files, and the classes are the schemas below them.
        node: node that an option sets, if its name is not that of the group.
        shared: arguments whose values stand elsewhere in the configuration.
        unset: arguments that no configuration sets.
    """

    places: dict[str, str]
    package: str = ""
    base: str = ""
    others: dict[str, str] = field(default_factory=dict)
    has_files: bool = False
    node: str = ""
    shared: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    def classes(self) -> dict[str, type]:
        """Returns the classes that can be chosen, by name."""
        found = classes(self.package, pkgutil.resolve_name(self.base)) if self.package else {}
        return {**found, **{name: pkgutil.resolve_name(path) for name, path in self.others.items()}}


_LOGGERS = "lightning.pytorch.loggers"
GROUPS = {
    "experiment": Group(
        {"experiment": "a tested training: model, data, metrics and values that differ from the defaults"}
    ),
    "model": Group(
        {"model": "the GAN, with the defaults of its paper"},
        "lit_gans.models",
        "lit_gans.training.module:AdversarialModule",
        shared={"image_size": "${data.image_size}", "channels": "${data.channels}", "seed": "${seed}"},
    ),
    "data": Group(
        {"data": "the images; some need an extra"},
        "lit_gans.data.sources",
        "lightning.pytorch:LightningDataModule",
        shared={"seed": "${seed}"},
    ),
    "metrics": Group(
        {"metrics": "what to measure during training"},
        "lit_gans.metrics.extractors",
        "lit_gans.metrics.extractors.base:Extractor",
        has_files=True,
    ),
    "trainer": Group(
        {"trainer": "Lightning's Trainer: iterations, devices"},
        others={"trainer": "lightning.pytorch:Trainer"},
        has_files=True,
    ),
    "strategy": Group(
        {"strategy": "how to distribute the training over several devices; auto is one device"},
        "lit_gans.strategies",
        "lightning.pytorch.strategies:Strategy",
        has_files=True,
        node="trainer.strategy",
    ),
    "precision": Group(
        {"precision": "numerical precision of the networks; fp16 needs CUDA and is refused elsewhere"},
        node="trainer.precision",
    ),
    "callbacks": Group(
        {"callbacks": "averaged weights, samples, checkpoints, early stopping"},
        "lit_gans.callbacks",
        "lightning.pytorch:Callback",
        has_files=True,
    ),
    "logger": Group(
        {"logger": "where values are logged; default is csv and tensorboard"},
        "lit_gans.callbacks",
        f"{_LOGGERS}:Logger",
        {
            "tensorboard": f"{_LOGGERS}:TensorBoardLogger",
            "wandb": f"{_LOGGERS}:WandbLogger",
            "mlflow": f"{_LOGGERS}:MLFlowLogger",
        },
        has_files=True,
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
        "lit_gans.training.schedules:Schedule",
    ),
    "score": Group(
        {"score@metrics.scores.{kid,mifid,prdc}": "what to measure besides, for example score@metrics.scores.kid=kid"},
        "lit_gans.metrics.scores",
        "lit_gans.metrics.scores.base:FeatureScore",
        # an `Evaluator` sets those of its scores
        unset=("feature", "normalize", "reset_real_features", "seed", "input_img_size"),
    ),
}


class ClassSource(ConfigSource):
    """Config source of the groups that are generated from classes."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return bool(_generated(config_path)) or bool(_generated(f"{config_path}/_schema"))

    def is_config(self, config_path: str) -> bool:
        return option(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return [] if results_filter == ObjectType.GROUP else sorted(_generated(config_path))

    def load_config(self, config_path: str) -> ConfigResult:
        target = option(config_path)
        assert target is not None, f"{config_path}: Hydra loads what is_config knows"
        group = GROUPS[config_path.partition("/")[0]]
        values = {name: value for name, value in schema(target).items() if name not in group.unset}
        if "/_schema/" not in config_path:
            values |= {name: value for name, value in group.shared.items() if name in values}
        return ConfigResult(
            provider=self.provider, path=self.full_path(), config=OmegaConf.create(values), header={"package": None}
        )


def register() -> None:
    """Registers the source with Hydra."""
    Plugins.instance().register(ClassSource)


def group_of(key: str) -> str | None:
    """Returns the group that a key chooses an option of, such as `optimizer` of `optimizer@model.generator_optimizer`;
    None for the key of a value.
    """
    name = key.partition("@")[0]
    return name if name in GROUPS else None


def options(group: str) -> list[str]:
    """Returns the names of a group's options, of YAML files and of classes."""
    folder = files(CONFIG_PACKAGE) / group
    found = [item.name.removesuffix(".yaml") for item in folder.iterdir()] if folder.is_dir() else []
    return sorted({*(name for name in found if not name.startswith("_")), *_generated(group)})


def option(path: str) -> type | Optimizer | None:
    """Returns the class of an option, `group/name`, or the value of an optimizer, or None if there is none."""
    group, _, name = path.strip("/").removesuffix(".yaml").rpartition("/")
    return _generated(group).get(name)


def _generated(path: str) -> dict[str, type | Optimizer]:
    """Returns the options at `GROUP` or `GROUP/_schema` that are generated from classes, by name."""
    name, _, below = path.strip("/").partition("/")
    group = GROUPS.get(name)
    if name == "optimizer" and not below:
        return _optimizers()
    if group is None or below not in (("_schema",) if group.has_files else ("", "_schema")):
        return {}
    return {option: cls for option, cls in group.classes().items() if name != "model" or is_gan(cls)}


@cache
def _optimizers() -> dict[str, type | Optimizer]:
    return {name.lower(): Optimizer(name) for name in optimizer_names()}
