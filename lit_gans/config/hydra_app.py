"""Composes configurations from command-line arguments, and runs commands with them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig

from lit_gans.common._compat.hydra import run_hydra
from lit_gans.common.errors import RefusedInput
from lit_gans.config.completed import experiment_file, with_defaults
from lit_gans.config.composition import composed, known_keys, settle
from lit_gans.config.groups import CONFIG_PACKAGE, GROUPS, SEARCH_PATH, register
from lit_gans.config.hints import errors_with_hints
from lit_gans.config.mistakes import DONE, exit_with_2
from lit_gans.config.overrides import SWEEP_FLAGS, quoted, replacing_nodes, with_search_path
from lit_gans.config.signatures import schema

logger = logging.getLogger(__name__)

_OPTIONS = {"model": "dcgan", "data": "folder"}  # default options for commands that require a model or data


def compose(*overrides: str, config_name: str = "train") -> DictConfig:
    """Composes a configuration like `lit-gans train`, for example `compose("model=dcgan", "data.batch_size=32")`.

    Like the command, it chooses an experiment if no experiment, model or data is set, and metrics that suit the data.

    Raises:
        RefusedInput: If an override has an unknown key or option. The message suggests the nearest valid name.
    """
    arguments = [*overrides]
    if config_name == "train":
        arguments, notices = with_defaults(arguments)
        arguments = experiment_file(arguments)
        for notice in notices:
            logger.warning(notice)
    with errors_with_hints(config_name, arguments):
        return composed(config_name, replacing_nodes(quoted(arguments)))


def hydra_command(
    config_name: str, job: Callable[[DictConfig], int | tuple[int, float | None] | None], arguments: list[str]
) -> int:
    """Composes a configuration from `arguments`, runs `job` with it, and returns the exit code.

    Args:
        config_name: name of the primary configuration.
        job: function that is called with the configuration, in a sweep once per combination. Returns an exit code, or
            None for 0, or a tuple of an exit code and a score for a Hydra sweeper. The score is None for a job without
            a score.
        arguments: overrides and Hydra's flags.
    """
    codes: list[int] = []
    scores: list[float] = []
    failures: list[Exception] = []
    known: list[str] = []

    def run_job(config: DictConfig) -> float | None:
        # the score of a failed job is None: Optuna's sweeper continues after None, but NaN would end the sweep
        score: float | None = None

        def checked() -> int:
            nonlocal score
            overrides = HydraConfig.get().overrides.task
            searched = [*HydraConfig.get().overrides.hydra, *overrides]
            settle(config_name, config, overrides, searched, arguments, known)
            result = job(config)
            code, score = result if isinstance(result, tuple) else (result or DONE, None)
            scores.extend([] if score is None else [score])
            return code

        try:
            codes.append(exit_with_2(checked))  # handled per job, so that an invalid job does not end a sweep
        except Exception as error:
            failures.append(error)
            raise
        return score

    def run() -> int:
        if config_name != "train" and {*SWEEP_FLAGS} & {*arguments}:
            raise RefusedInput("-m sweeps trainings only (lit-gans train -m): run this command once for each value.")
        register()
        with errors_with_hints(config_name, arguments, failures):
            known.extend(known_keys(config_name, arguments))
            try:
                overrides = replacing_nodes(quoted(arguments))
                run_hydra(with_search_path(overrides, last=SEARCH_PATH), run_job, CONFIG_PACKAGE, config_name)
            except ValueError:
                if failures or scores or DONE in codes or not codes:
                    raise
                print("lit-gans: every job of the sweep has failed, so that none is the best.", file=sys.stderr)
        return max(codes, default=DONE)

    return exit_with_2(run)


def function_config(function: Callable[..., Any]) -> str:
    """Stores the configuration that a function's signature defines, and returns the name of the configuration.

    The keys are the arguments of the function. If an argument has the name of a configuration group, such as `model`,
    its value selects an option of the group.
    """
    arguments = schema(function)
    groups = [name for name in arguments if name in GROUPS]
    shared: dict[str, Any] = {"seed": 0} if groups else {}
    if "model" in groups and "data" not in groups:
        shared["data"] = {"image_size": 64, "channels": 3}  # the model interpolates these keys
    options = [{name: _OPTIONS[name] if arguments[name] == MISSING else None} for name in groups]
    quiet = [{f"override hydra/{name}_logging": "none"} for name in ("job", "hydra")]
    hydra = {"job": {"name": "lit-gans"}, "run": {"dir": "."}, "output_subdir": None}
    node = {"defaults": ["_self_", *options, *quiet], "hydra": hydra, **shared, **arguments}
    ConfigStore.instance().store(name=function.__name__, node=node)
    return function.__name__
