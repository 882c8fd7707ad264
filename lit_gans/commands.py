"""The commands beside training: functions whose signatures are their configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig


def commands() -> dict[str, Callable[..., Any]]:
    """Returns the functions by the name of their configuration file."""
    from lit_gans.benchmark.step import step
    from lit_gans.evaluate import evaluate
    from lit_gans.sampling import interpolate, sample

    return {"sample": sample, "interpolate": interpolate, "evaluate": evaluate, "bench_step": step}


def run(name: str) -> int:
    """Runs the command of that name with what `sys.argv` composes and returns the exit code."""
    from lit_gans.config import call, resolve, schema, to_class_path
    from lit_gans.launch import hydra_command
    from lit_gans.settings import quiet

    def job(composed: DictConfig) -> None:
        function = commands()[name]
        arguments = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        call(function, to_class_path(arguments))

    quiet()
    return hydra_command(name, job)
