"""Groups of the configuration and their options, and the Hydra config source that generates options from classes.

Hydra queries its config sources for `group/option`. The source in this module returns the signature of a class, so that
a class needs no YAML file. A signature is read only when Hydra queries it. The options are:

    model/NAME, data/NAME       a GAN or a data source, with shared sizes and seed
    schedule/NAME, score/NAME   a schedule or a score
    optimizer/NAME              an optimizer of torch.optim, with its arguments and their defaults
    GROUP/_schema/NAME          the signature alone, as a base for YAML files (including model and data)
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
from lit_gans.training.optim import OptimizerConfig, optimizer_names

CONFIG_PACKAGE = "lit_gans.conf"
SCHEME = "lit-gans"
SEARCH_PATH = f"{SCHEME}://classes"  # last entry of the search path, so that users' files take precedence


@dataclass(frozen=True)
class Group:
    """Group of options of the configuration.

    Args:
        places: descriptions for the help, by key. A key is `GROUP`, or `GROUP@NODE` if options of the group can set
            several nodes.
        package: package of the classes; empty if the options are not generated from classes.
        base: base class of the classes, as `module:name`.
        others: classes of other libraries as `module:name`, by option.
        has_files: whether the options are YAML files, for which the classes provide only `_schema` options.
        node: configuration node that an option sets; empty if the node has the name of the group.
        shared: interpolations for arguments whose values are set elsewhere in the configuration.
        unset: arguments that a configuration cannot set.
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
        """Returns the classes of the group by name."""
        by_name = classes(self.package, pkgutil.resolve_name(self.base)) if self.package else {}
        return {**by_name, **{name: pkgutil.resolve_name(path) for name, path in self.others.items()}}


_LOGGERS = "lightning.pytorch.loggers"
GROUPS = {
    "experiment": Group({"experiment": "tested settings of a training: model, data, metrics and changed defaults"}),
    "model": Group(
        {"model": "GAN, with the defaults of its paper"},
        "lit_gans.models",
        "lit_gans.training.module:AdversarialModule",
        shared={"image_size": "${data.image_size}", "channels": "${data.channels}", "seed": "${seed}"},
    ),
    "data": Group(
        {"data": "source of the images; some sources need an extra"},
        "lit_gans.data.sources",
        "lightning.pytorch:LightningDataModule",
        shared={"seed": "${seed}"},
    ),
    "metrics": Group(
        {"metrics": "metrics to measure during training"},
        "lit_gans.metrics.extractors",
        "lit_gans.metrics.extractors.base:Extractor",
        has_files=True,
    ),
    "trainer": Group(
        {"trainer": "arguments of Lightning's Trainer, such as iterations and devices"},
        others={"trainer": "lightning.pytorch:Trainer"},
        has_files=True,
    ),
    "strategy": Group(
        {"strategy": "strategy that distributes the training over several devices; auto uses a single device"},
        "lit_gans.strategies",
        "lightning.pytorch.strategies:Strategy",
        has_files=True,
        node="trainer.strategy",
    ),
    "precision": Group(
        {"precision": "numerical precision of the training; tf32 is fp32 with model.tf32=true; fp16 needs CUDA"},
        node="trainer.precision",
    ),
    "callbacks": Group(
        {"callbacks": "callbacks for averaged weights, samples, checkpoints and early stopping"},
        "lit_gans.callbacks",
        "lightning.pytorch:Callback",
        has_files=True,
    ),
    "logger": Group(
        {"logger": "loggers that receive the values; default is csv and tensorboard"},
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
            "optimizer@model.discriminator_optimizer": "optimizer of every discriminator",
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
        {"score@metrics.scores.{kid,mifid,prdc}": "additional scores, for example score@metrics.scores.kid=kid"},
        "lit_gans.metrics.scores",
        "lit_gans.metrics.scores.base:FeatureScore",
        # `Evaluator` sets these arguments of its scores
        unset=("feature", "normalize", "reset_real_features", "seed", "input_img_size"),
    ),
}


class ClassSource(ConfigSource):
    """Hydra config source for the options that are generated from classes."""

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
        assert target is not None, f"{config_path}: Hydra calls load_config only if is_config returns True"
        group = GROUPS[config_path.partition("/")[0]]
        values = {name: value for name, value in schema(target).items() if name not in group.unset}
        if "/_schema/" not in config_path:
            values |= {name: value for name, value in group.shared.items() if name in values}
        return ConfigResult(
            provider=self.provider, path=self.full_path(), config=OmegaConf.create(values), header={"package": None}
        )


def register() -> None:
    """Registers the config source with Hydra."""
    Plugins.instance().register(ClassSource)


def group_of(key: str) -> str | None:
    """Returns the group of a key, such as `optimizer` for `optimizer@model.generator_optimizer`.

    Returns None for a key that does not select an option.
    """
    name = key.partition("@")[0]
    return name if name in GROUPS else None


def options(group: str) -> list[str]:
    """Returns the names of all options of a group, from YAML files and from classes."""
    folder = files(CONFIG_PACKAGE) / group
    names = [item.name.removesuffix(".yaml") for item in folder.iterdir()] if folder.is_dir() else []
    return sorted({*(name for name in names if not name.startswith("_")), *_generated(group)})


def option(path: str) -> type | OptimizerConfig | None:
    """Returns the class or the optimizer of the option `group/name`, or None if no class generates it."""
    group, _, name = path.strip("/").removesuffix(".yaml").rpartition("/")
    return _generated(group).get(name)


def _generated(path: str) -> dict[str, type | OptimizerConfig]:
    """Returns the options at `GROUP` or `GROUP/_schema` that are generated from classes, by name."""
    name, _, below = path.strip("/").partition("/")
    group = GROUPS.get(name)
    if name == "optimizer" and not below:
        return _optimizers()
    if group is None or below not in (("_schema",) if group.has_files else ("", "_schema")):
        return {}
    return {option: cls for option, cls in group.classes().items() if name != "model" or is_gan(cls)}


@cache
def _optimizers() -> dict[str, type | OptimizerConfig]:
    return {name.lower(): OptimizerConfig(name) for name in optimizer_names()}
