"""Races of `lit-gans bench gpu`: a GAN's step in turns with the tutorials' loop and one without Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lit_gans.benchmark.gpu_cells import MODES, Cell, tf32
from lit_gans.benchmark.measure import spread
from lit_gans.benchmark.race import beside_others, run
from lit_gans.benchmark.step import TOLERANCE, first_step
from lit_gans.benchmark.tutorials import TUTORIALS
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.optim import Adam

_WARMUP, _STEPS = 3, 20  # iterations
_LOG_EVERY = 10
_MODES = ("tf32", "bf16", "compile")
_COMPILED = "dcgan"  # alone: compiling takes a minute of the few that there are


def races(gans: dict[str, type[AdversarialModule]], batch_size: int, device: torch.device) -> list[Cell]:
    """Returns the races of those GANs of which there is a tutorial."""
    known = [name for name, cls in gans.items() if cls in TUTORIALS]
    return [
        Cell(gan, mode, batch_size)
        for gan in known
        for mode in _MODES
        if not MODES[mode].compile or (gan == _COMPILED and device.type == "cuda")  # minutes on a CPU
    ]


def measure_race(cell: Cell, make: Callable[..., AdversarialModule], device: torch.device) -> dict[str, Any]:
    """Runs the three loops of `bench step` in turns.

    Args:
        cell: what to train; ours and the loop without Lightning use channels_last in every mode, as by default.
        make: returns a module of this GAN; takes the arguments of the module.
        device: device of the training.

    Returns:
        `images_per_second` of `lit_gans`, its `speedup_over_tutorial` and `cost_over_bare`, and `first_step`: whether
        it begins with the losses of the loop without Lightning.
    """
    mode = MODES[cell.mode]
    precision = "bf16" if mode.precision == "bf16-mixed" else "fp32"
    constant = Adam(2e-4, (0.0, 0.9))  # the loops by hand have no schedules

    def made(**settings: Any) -> AdversarialModule:
        return make(generator_optimizer=constant, discriminator_optimizer=constant, **settings)

    with tf32(mode.tf32):
        num = _WARMUP + _STEPS + 1  # the last step of `lit_gans` is not timed
        race, _ = run(made, cell.batch_size, num, precision, mode.compile, _LOG_EVERY, 0, device)
    seconds = {name: times[_WARMUP:][:_STEPS] for name, times in race.seconds.items()}
    images = cell.batch_size * race.module.n_critic
    return {
        "images_per_second": images / spread(seconds["lit_gans"])["median"],
        **beside_others(seconds, "lit_gans"),
        "first_step": first_step(race, ["bare"], TOLERANCE[precision, device.type]),
    }
