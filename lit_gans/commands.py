"""The commands beside training: functions whose signatures are their configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

_PLACES = {
    "sample": "lit_gans.sampling",
    "interpolate": "lit_gans.sampling",
    "evaluate": "lit_gans.evaluate",
    "describe": "lit_gans.describe",
    "pack": "lit_gans.pack",
    "bench_step": "lit_gans.benchmark.step",
    "bench_metrics": "lit_gans.benchmark.metrics",
    "bench_data": "lit_gans.benchmark.data",
    "bench_strategies": "lit_gans.benchmark.strategies",
}


def command(name: str) -> Callable[..., Any] | None:
    """Returns the function of a configuration file, or None where the file is not that of a function."""
    place = _PLACES.get(name)
    return getattr(importlib.import_module(place), name.removeprefix("bench_")) if place else None


def run(name: str) -> int:
    """Runs the command of that name with what `sys.argv` composes and returns the exit code."""
    from lit_gans.config import resolve, to_class_path
    from lit_gans.construct import call, schema
    from lit_gans.launch import hydra_command
    from lit_gans.settings import quiet

    def job(composed: DictConfig) -> None:
        function = command(name)
        arguments = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        call(function, to_class_path(arguments))

    quiet()
    return hydra_command(name, job)
