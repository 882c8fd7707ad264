"""The commands beside training: functions whose signatures are their configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from omegaconf import DictConfig

_PLACES = {
    "sample": "lit_gans.cli.sample",
    "interpolate": "lit_gans.cli.sample",
    "evaluate": "lit_gans.cli.evaluate",
    "describe": "lit_gans.cli.describe",
    "pack": "lit_gans.cli.pack",
    "bench_step": "lit_gans.benchmark.step",
    "bench_metrics": "lit_gans.benchmark.metrics",
    "bench_data": "lit_gans.benchmark.data",
    "bench_strategies": "lit_gans.benchmark.strategies",
}

_WITHOUT_WEIGHTS = ("describe",)  # models are built on the meta device


def command(name: str) -> Callable[..., Any] | None:
    """Returns the function of a configuration file, or None where the file is not that of a function."""
    place = _PLACES.get(name)
    return getattr(importlib.import_module(place), name.removeprefix("bench_")) if place else None


def run(name: str) -> int:
    """Runs the command of that name with what `sys.argv` composes and returns the exit code."""
    import torch

    from lit_gans.common.quiet import quiet
    from lit_gans.config.build import resolve, to_class_path
    from lit_gans.config.hydra_app import hydra_command
    from lit_gans.config.signatures import call, schema

    def job(composed: DictConfig) -> None:
        function = command(name)
        arguments = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        with torch.device("meta") if name in _WITHOUT_WEIGHTS else nullcontext():
            call(function, to_class_path(arguments))

    quiet()
    return hydra_command(name, job)
