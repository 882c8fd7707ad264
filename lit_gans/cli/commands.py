"""Commands other than training: functions whose signatures define their configuration."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

PLACES = {  # modules of the functions
    "sample": "lit_gans.cli.sample",
    "interpolate": "lit_gans.cli.sample",
    "evaluate": "lit_gans.cli.evaluate",
    "describe": "lit_gans.cli.describe",
    "export": "lit_gans.cli.export",
    "pack": "lit_gans.cli.pack",
    "bench": "lit_gans.cli.bench",
}

_WITHOUT_WEIGHTS = ("describe",)  # models are built on the meta device

# `output` is a file
_WITH_FILE = ("evaluate", "bench")


def place(name: str) -> tuple[str, str]:
    """Returns the module and the name of a command's function."""
    return PLACES[name], name


def command(name: str) -> Callable[..., Any]:
    """Returns the function of a command."""
    module, function = place(name)
    return getattr(importlib.import_module(module), function)


def run(name: str, given: list[str] | None = None) -> int:
    """Runs a command with the given arguments, by default those of `sys.argv`; returns the exit code."""
    import torch

    from lit_gans.cli.suitable_metrics import scores_named
    from lit_gans.common.quiet import quiet
    from lit_gans.config.build import resolve
    from lit_gans.config.hydra_app import hydra_command
    from lit_gans.config.run_folder import refuse_file
    from lit_gans.config.signatures import call, schema

    def job(composed: DictConfig) -> None:
        arguments = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        if "required" in arguments:
            arguments["required"] = [*arguments["required"], *scores_named(argv)]
        if name in _WITH_FILE and arguments.get("output"):
            refuse_file(arguments["output"], "output")
        with torch.device("meta") if name in _WITHOUT_WEIGHTS else nullcontext():
            call(function, arguments)

    quiet()
    function = command(name)
    argv = sys.argv[1:] if given is None else given
    return hydra_command(name, job, argv, function)
