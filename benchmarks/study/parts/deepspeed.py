"""The comparison of DeepSpeed's tutorial: the plain training loop against one DeepSpeed engine for each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.loops import TutorialLoop
from benchmarks.measure import now
from benchmarks.study.contract import Cell, Part, Picture, Result, Table, Unavailable
from benchmarks.study.plotting import lines
from benchmarks.study.settings import Settings
from benchmarks.study.training import CELEBA_IMAGES, model_node, timing, train
from lit_gans.config.signatures import construct
from lit_gans.models.dcgan import DCGAN

_PLAIN = "plain loop"
_STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"name": "network_ddp"},
    "engines": {"name": "network_deepspeed", "stage": 0},
    "engines, ZeRO 1": {"name": "network_deepspeed", "stage": 1},
    "engines, ZeRO 2": {"name": "network_deepspeed", "stage": 2},
}


class DeepSpeed(Part):
    """Times an epoch of DCGAN with the tutorial's plain loop and with DeepSpeed engines."""

    title = "DeepSpeed's tutorial"
    question = (
        "Seconds for an epoch of CelebA's 202,599 images, batch size per process as in the tutorial: the plain loop on"
        " one device (three backward passes, losses fetched in each step), `strategy=ddp`, and one engine for each"
        " network."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        cells = []
        for name in (_PLAIN, *_STRATEGIES):
            for ranks in settings.ranks:
                values = {
                    "loop": name,
                    "model": model_node(
                        "dcgan", settings.image_size, settings.width, "dcgan_deepspeed", seed=settings.seed
                    ),
                    "batch_size": settings.batch_size,
                    "device": settings.device,
                    "strategy": _STRATEGIES.get(name),
                    **timing(settings),
                }
                alone = name == _PLAIN and ranks > 1
                reason = "the plain loop knows nothing of other processes." if alone else None
                cells.append(Cell("deepspeed", f"{name}, {ranks}", values, ranks, reason=reason))
        return cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        return plain_loop(cell.settings) if cell.settings["loop"] == _PLAIN else train(cell.settings)

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        own = [result for result in results["deepspeed"] if result.repeats]
        first = next((_epoch(r) for r in own if r.settings["loop"] == _PLAIN), None)
        rows = [
            [
                result.settings["loop"],
                str(result.cell.ranks),
                f"{_epoch(result):,.0f}",
                "" if first is None else f"{first / _epoch(result):.2f}",
                str(len(result.repeats)),
            ]
            for result in own
        ]
        columns = ["loop", "processes", "s an epoch", "times as fast as the plain loop", "n"]
        return [Table("Seconds an epoch", columns, rows)]

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        own = [result for result in results["deepspeed"] if result.repeats]
        names = dict.fromkeys(result.settings["loop"] for result in own)
        curves = {n: [(r.cell.ranks, _epoch(r)) for r in own if r.settings["loop"] == n] for n in names}
        return [lines("Seconds an epoch", curves, "processes", "seconds an epoch", "xy")] if curves else []


def plain_loop(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Times the tutorial's loop, and returns `seconds` of a step and `generator_images_per_second`.

    Args:
        settings: as of `training.train`.

    Raises:
        Unavailable: a step takes longer than `step_limit`.
    """
    device = torch.device(settings["device"])
    module = construct(settings["model"] | {"channels_last": False}, "model")
    assert isinstance(module, DCGAN)
    loop = TutorialLoop(module.to(device))
    shape = (settings["batch_size"], module.channels, module.image_size, module.image_size)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).mul(2).sub(1)
    start = now(device)
    for _ in range(1 + settings["warmup"]):  # the first step is cold
        start = now(device)
        loop.step(images.to(device))
    step = now(device) - start
    if step > settings["step_limit"]:
        raise Unavailable(f"a step takes {step:.0f} s here, longer than step_limit={settings['step_limit']:g}.")
    steps = min(settings["steps"], max(2, round(settings["seconds"] / step)))
    start = now(device)
    for _ in range(steps):
        losses = loop.step(images.to(device))
    seconds = (now(device) - start) / steps
    found = {f"loss/{name}": float(loss) for name, loss in losses.items()}
    return {"seconds": seconds, "steps": steps, "generator_images_per_second": len(images) / seconds, **found}


def _epoch(result: Result) -> float:
    return CELEBA_IMAGES / result.median("generator_images_per_second")
