"""What every command shares: Hydra started with our schemas, refusals as one sentence, the folder of a run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.run_folder import run_folder, sweep_folder

DONE, FAILED, REFUSED = 0, 1, 2


def register_resolvers() -> None:
    """Gives the configuration files the folder of the run."""
    OmegaConf.register_new_resolver("lit_gans.run_folder", run_folder, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("lit_gans.sweep_folder", sweep_folder, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("lit_gans.output_dir", _output_dir, replace=True)


def _output_dir() -> str:
    return HydraConfig.get().runtime.output_dir if HydraConfig.initialized() else os.getcwd()


def hydra_command(config_name: str, job: Callable[[DictConfig], Any]) -> int:
    """Runs `job` with the configuration that `sys.argv` composes and returns the exit code."""
    import hydra

    from lit_gans.config.build import CONFIG_PACKAGE, register

    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not as Hydra's print and exit code 1
    codes: list[int] = []

    def caught(config: DictConfig) -> None:  # within the job, or Hydra would print about it too
        codes.append(refused_is_2(lambda: job(config) or DONE))

    def run() -> int:
        register_resolvers()
        register(config_name)
        with refusals(config_name, sys.argv[1:]):
            decorate = hydra.main(version_base="1.3", config_path=f"pkg://{CONFIG_PACKAGE}", config_name=config_name)
            decorate(caught)()
        return max(codes, default=DONE)

    return refused_is_2(run)


def refused_is_2(command: Callable[[], int]) -> int:
    """Returns the exit code of `command`; refused input is one sentence on stderr and 2."""
    try:
        return command()
    except RefusedInput as error:
        print(f"lit-gans: {error}", file=sys.stderr)
        return REFUSED


@contextmanager
def refusals(config_name: str, overrides: list[str] | None = None) -> Iterator[None]:
    """Turns what Hydra and OmegaConf report while composing into one sentence with the nearest valid name."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise RefusedInput(_sentence(error, config_name, overrides or [])) from error


def _sentence(error: Exception, config_name: str, overrides: list[str]) -> str:
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={option}: there is no such {group}; {nearest(option, error.options)}"
    if isinstance(error, OverrideParseException):
        return f"'{error.override}' cannot be read as key=value: {text.splitlines()[0]}."
    override = re.search(r"Could not override '([^']+)'", text)
    if override:
        return f"{override[1]}: there is no such key; {_nearest_key(override[1], config_name, overrides)}"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    key = getattr(cause, "full_key", None)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{key}: {lines[0]}" if key and key not in lines[0] else lines[0]


def _nearest_key(key: str, config_name: str, overrides: list[str]) -> str:
    """Composes without plain values (groups decide which keys there are) and compares with the neighbours of `key`."""
    from hydra import compose, initialize_config_module

    from lit_gans.config.build import CONFIG_PACKAGE

    groups = [item for item in overrides if "." not in item.partition("=")[0] and not item.startswith("-")]
    groups += [item for item in overrides if item.startswith("hydra.searchpath=")]
    GlobalHydra.instance().clear()
    config: Any = {}
    for kept in ([item for item in groups if not item.startswith(f"{key}=")], []):
        try:
            with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
                config = compose(config_name, kept)
            break
        except (HydraException, OmegaConfBaseException):
            continue
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    if not isinstance(node, DictConfig):
        return _nearest_key(parent, config_name, overrides) if parent else "see --cfg job."
    names = [str(item) for item in node if item != "_target_"]
    if "_target_" in list(node) and not names:  # a class of the user, whose arguments no schema knows
        return f"an argument of your own class takes a plus: +{key}=..."
    if not parent:
        names += ["experiment", "strategy", "precision"]
    return nearest(name, names)
