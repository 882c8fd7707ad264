"""Composes a configuration with Hydra, and refuses or announces overrides that have no effect."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.groups import CONFIG_PACKAGE, SEARCH_PATH, option, register
from lit_gans.config.overrides import key_of, value_of, with_search_path
from lit_gans.config.signatures import is_node, schema, target_class, without_remains
from lit_gans.training.optim import OptimizerConfig

logger = logging.getLogger(__name__)


def composed(config_name: str, overrides: list[str]) -> DictConfig:
    """Returns the configuration of a command with overrides.

    Raises:
        RefusedInput: If an override has no effect.
    """
    register()
    known = known_keys(config_name, overrides)
    GlobalHydra.instance().clear()
    with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
        searched = with_search_path(overrides, last=SEARCH_PATH)
        config = hydra_compose(config_name, searched)
        settle(config_name, config, overrides, searched, overrides, known)
    return config


def known_keys(config_name: str, arguments: Iterable[str]) -> list[str]:
    """Returns the keys at the top level of a configuration, or an empty list if no argument adds a key."""
    adds = any(argument.startswith("+") for argument in arguments)
    return [str(key) for key in composed(config_name, [])] if adds else []


def settle(
    config_name: str,
    config: DictConfig,
    overrides: Sequence[str],
    searched: Sequence[str],
    arguments: Iterable[str],
    known: Collection[str],
) -> None:
    """Removes what overrides have replaced from a configuration that Hydra has just composed.

    Args:
        config_name: name of the primary configuration.
        config: composed configuration.
        overrides: overrides of the configuration.
        searched: the overrides with those of Hydra, such as its search path.
        arguments: all arguments, in which an interpolation can read a key, such as `hydra.run.dir=runs/${name}`.
        known: result of `known_keys`.

    Raises:
        RefusedInput: If an override has no effect.
    """
    _log_dropped_settings(config_name, config, searched)
    _drop_leftovers(config, overrides)
    _refuse_without_effect(config, overrides)
    _refuse_unused_keys(config, overrides, arguments, known)


def _drop_leftovers(config: DictConfig, overrides: Sequence[str]) -> None:
    """Removes the settings of an experiment that belong to options which `none` or `auto` have replaced.

    With `callbacks=none`, only callbacks that overrides set are kept. With `strategy=auto`, the arguments of the
    experiment's strategy are removed.
    """
    typed = [(key_of(override) or "").rpartition("@")[2] for override in overrides]
    if "callbacks=none" in overrides:
        kept = {key.split(".")[1] for key in typed if key.startswith("callbacks.")}
        config.callbacks = {name: node for name, node in config.callbacks.items_ex(resolve=False) if name in kept}
    is_set = any(key.startswith("trainer.strategy") for key in typed)
    if "strategy=auto" in overrides and not is_set:
        config.trainer.strategy = "auto"


def _log_dropped_settings(config_name: str, config: DictConfig, overrides: Sequence[str]) -> None:
    """Logs the settings of an optimizer that a name replaces, such as `model.generator_optimizer=AdamW`."""
    for override in overrides:
        key = key_of(override) or ""
        if not re.fullmatch(r"model\.\w+_optimizer", key) or not isinstance(OmegaConf.select(config, key), str):
            continue
        previous: Any = OmegaConf.select(
            hydra_compose(config_name, [each for each in overrides if each != override]), key
        )
        if not isinstance(previous, DictConfig):
            continue
        values: Any = OmegaConf.to_container(previous)
        defaults = schema(OptimizerConfig(values["name"]))
        changed = [name for name, value in values.items() if value is not None and value != defaults.get(name)]
        shown = [name if is_node(values[name]) else f"{name}={values[name]}" for name in changed]
        if shown:
            logger.info(
                "%s drops %s of %s; %s.name=%s keeps them",
                override,
                ", ".join(shown),
                values["name"],
                key,
                value_of(override),
            )


def _refuse_without_effect(config: DictConfig, overrides: Iterable[str]) -> None:
    """Raises `RefusedInput` for overrides without effect.

    An option has no effect if an experiment sets another class, because Hydra merges an experiment over the options
    that are selected by group. An argument has no effect if it belongs to an optimizer or schedule that was replaced.
    """
    for override in overrides:
        group, _, place = (key_of(override) or "").partition("@")
        if not place:
            _refuse_dropped_argument(config, override)
            continue
        selected, node = option(f"{group}/{value_of(override)}"), OmegaConf.select(config, place)
        if selected is None or not isinstance(node, DictConfig) or "_target_" not in node:
            continue
        expected = schema(selected)
        is_same = target_class(node._target_, place) is target_class(expected["_target_"], place)
        if not is_same or node.get("name") != expected.get("name"):
            raise RefusedInput(
                f"{override} has no effect, because another value sets the class of {place}: write `override"
                f" /{group}@{place}: NAME` in the defaults of a file instead, or set {place}._target_=CLASS."
            )


def _refuse_unused_keys(
    config: DictConfig, overrides: Iterable[str], arguments: Iterable[str], known: Collection[str]
) -> None:
    """Raises `RefusedInput` for a new key such as `+minutes=60` at the top level that no interpolation reads.

    See `settle`.
    """
    text = " ".join([OmegaConf.to_yaml(config), *arguments]) if known else ""
    for override in overrides if known else ():
        key = key_of(override) or ""
        key = (key.partition("@")[2] or key).partition(".")[0]
        is_new = override.startswith("+") and key in config and key not in known
        if is_new and not re.search(r"\$\{\.*" + re.escape(key) + r"\b", text):
            raise RefusedInput(f"{override} has no effect: there is no key {key!r}; {nearest(key, known)}")


def _refuse_dropped_argument(config: DictConfig, override: str) -> None:
    parent, _, name = (key_of(override) or "").rpartition(".")
    node = OmegaConf.select(config, parent) if parent else None
    if not isinstance(node, DictConfig) or "_target_" not in node or name == "_target_":
        return
    if name == "decay" and node.get("half_life") is not None:  # of `EMA`
        raise RefusedInput(
            f"{override} has no effect, because {parent}.half_life is set, and replaces it: set {parent}.half_life,"
            f" or add {parent}.half_life=null."
        )
    arguments: Any = OmegaConf.to_container(node)
    target = arguments.pop("_target_")
    known = without_remains(target_class(target, parent), arguments)
    if name in arguments and name not in known:
        owner = arguments.get("name", target.rpartition(".")[2])
        raise RefusedInput(f"{override} has no effect: {owner} has no such argument; {nearest(name, known)}")
