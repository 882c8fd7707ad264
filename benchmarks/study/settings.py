"""Settings of the study, and the sizes of its presets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.docs import as_typed, meanings

PresetName = Literal["auto", "full", "cpu", "smoke"]


@dataclass(frozen=True)
class Settings:
    """What the parts may choose their cells from.

    Args:
        device: `cpu` or `cuda`, on which all cells but those of `batch` run.
        devices: all devices of this machine, for `batch`.
        ranks: numbers of processes, ascending, beginning with 1.
        cores: number of cores of this machine that this process may use.
        gans: names of the GANs in `batch` and `scaling`.
        batch_sizes: batch sizes of `batch`, in images.
        image_size: height and width of the images in `batch`, `scaling`, `overlap` and `deepspeed`, in pixels.
        batch_size: batch size per process of all parts but `batch` and `dual`, in images.
        small_image_size: height and width of the images in `optimizations`, `lightweight` and `projection`, in pixels.
        width: width of the networks, in channels; null leaves that of the study's networks.
        dual_gans: names of the GANs in `dual`.
        steps: largest number of timed steps of a cell.
        fixed_steps: number of steps where losses are compared after the same images.
        warmup: number of steps before the timed ones.
        seconds: seconds after which a cell ends, once it has timed two steps.
        step_limit: seconds that one step may take on a CPU; longer ones are listed instead of measured.
        zero_batch_sizes: batch sizes per process of the ZeRO stages in `optimizations`, beside `batch_size`, in images.
        seeds: seeds of the trainings in `dual`.
        dual_batch_sizes: batch sizes in `dual`, in images.
        dual_data: names of the data in `dual`: `digits`, `emoji`, `stacked_digits`.
        dual_images: number of real images that each training in `dual` sees, those of all critic steps.
        dual_seconds: seconds that each training in `dual` takes at least; null for none.
        dual_samples: number of generated images per evaluation in `dual`.
        evaluations: number of evaluations on the way to `dual_images`, and as many to `dual_seconds`.
        seed: seed of all random numbers elsewhere.
        compiles: whether `optimizations` compiles networks, which takes a minute on a CPU.
    """

    device: str
    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    cores: int
    gans: tuple[str, ...]
    batch_sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    image_size: int = 64
    batch_size: int = 64
    small_image_size: int = 64
    width: int | None = None
    dual_gans: tuple[str, ...] = ("dcgan", "d2gan", "d3gan")
    steps: int = 50
    fixed_steps: int = 100
    warmup: int = 3
    seconds: float = 5.0
    step_limit: float = 30.0
    zero_batch_sizes: tuple[int, ...] = (1, 4, 8)
    seeds: tuple[int, ...] = (0, 1, 2)
    dual_batch_sizes: tuple[int, ...] = (64, 256, 512)
    dual_data: tuple[str, ...] = ("digits",)
    dual_images: int = 500_000
    dual_seconds: float | None = None
    dual_samples: int = 5000
    evaluations: int = 10
    seed: int = 0
    compiles: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values."""
        return asdict(self)


PRESETS: dict[str, dict[str, Any]] = {
    "full": {},
    # under an hour on two cores
    "cpu": {
        "batch_size": 8,
        "small_image_size": 32,
        "steps": 10,
        "fixed_steps": 10,
        "warmup": 1,
        "seconds": 2.0,
        "step_limit": 15.0,
        "dual_images": 15_000,
        "dual_samples": 500,
        "evaluations": 5,
    },
    # two minutes; its times mean nothing
    "smoke": {
        "batch_sizes": (2, 4),
        "image_size": 16,
        "batch_size": 2,
        "small_image_size": 16,
        "width": 4,
        "steps": 2,
        "fixed_steps": 2,
        "warmup": 1,
        "seconds": 0.1,
        "zero_batch_sizes": (1,),
        "dual_batch_sizes": (64,),
        "dual_images": 128,
        "dual_samples": 64,
        "evaluations": 1,
        "compiles": False,
    },
}


_NOT_GIVEN = ("device", "devices", "ranks", "cores", "gans", "dual_gans", "compiles")


def preset(name: PresetName, settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Returns settings with the sizes of a preset, and then the given ones.

    Args:
        name: preset; `auto` is `full` on CUDA and `cpu` elsewhere.
        settings: settings of the machine.
        given: values that replace those of the preset.

    Raises:
        RefusedInput: a value has no such name, another type or is below 1.
    """
    if name == "auto":
        name = "full" if settings.device == "cuda" else "cpu"
    known = _types()
    for key, value in given.items():
        if key not in known:
            raise RefusedInput(f"sizes.{key}: there is no such size; {nearest(key, known)}")
        expected = _expected(key, value, known[key])
        if expected is not None:
            raise RefusedInput(f"sizes.{key}={value!r} is not valid: expected {expected}.")
    values = {key: tuple(value) if isinstance(value, Sequence) else value for key, value in given.items()}
    return replace(settings, **(PRESETS[name] | values))


def described() -> list[tuple[str, str, str]]:
    """Returns name, meaning and default of each size that can be given."""
    said, defaults = meanings(Settings), {field.name: field.default for field in fields(Settings)}
    cpu = {name: f"; {as_typed(value)} with preset=cpu" for name, value in PRESETS["cpu"].items()}
    return [(name, said[name], as_typed(defaults[name]) + cpu.get(name, "")) for name in _types()]


def _types() -> dict[str, str]:
    """Returns the type of each size that can be given, as it is written above."""
    return {field.name: str(field.type) for field in fields(Settings) if field.name not in _NOT_GIVEN}


def _expected(key: str, value: Any, kind: str) -> str | None:
    """Returns what a size should be, or None for a valid one."""
    optional, several, whole = kind.endswith("None"), kind.startswith("tuple"), "int" in kind
    if optional and value is None:
        return None
    values = (list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []) if several else [value]
    if "str" in kind:
        return None if values and all(isinstance(each, str) for each in values) else "a list of names"
    least = 0 if key in ("seed", "seeds", "seconds", "step_limit") else 1
    numbers = int if whole else (int, float)
    if values and all(isinstance(n, numbers) and not isinstance(n, bool) and least <= n < math.inf for n in values):
        return None
    name = "whole number" if whole else "number"
    text = f"a list of {name}s, at least {least} each" if several else f"a {name}, at least {least}"
    return f"{text}, or null" if optional else text
