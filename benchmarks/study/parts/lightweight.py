"""Cheaper blocks and narrower networks: cost, speed, and quality after equal time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from benchmarks.measure import count_flops, quiet_trainer
from benchmarks.study.contract import Cell, Part, Picture, Result, Table
from benchmarks.study.plotting import Points, lines
from benchmarks.study.settings import Settings
from benchmarks.study.training import model_node, timing, train
from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.config.signatures import construct
from lit_gans.data.sources.digits import Digits
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.training.adversarial import AdversarialModule

_BLOCKS = ("plain", "grouped", "separable", "inverted_residual")
_MULTIPLIERS = (1.0, 0.5)
_WIDTH = 64  # of the scaling study's networks
_FEWEST = 500  # generated images per FID
_FID_SECONDS = 5  # times the seconds of a timed cell


class Lightweight(Part):
    """Trains DCGAN with each block at each width, for speed and for quality after the same seconds."""

    title = "Lightweight networks"
    question = (
        "Parameters and multiply-adds of one image (forward, torch's counter), images per second, speed-up over plain"
        " convolutions of full width, and FID on the digits after equal time."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        width = settings.width or _WIDTH
        return [
            Cell(
                "lightweight",
                f"{block}, width x {multiplier:g}",
                {
                    "block": block,
                    "multiplier": multiplier,
                    "model": model_node(
                        "dcgan",
                        settings.small_image_size,
                        max(1, int(width * multiplier)),
                        block=block,
                        seed=settings.seed,
                    ),
                    "batch_size": settings.batch_size,
                    "device": settings.device,
                    "fid_seconds": settings.seconds * _FID_SECONDS,
                    "fid_samples": settings.dual_samples,
                    **timing(settings),
                },
            )
            for block in _BLOCKS
            for multiplier in _MULTIPLIERS
        ]

    def measure(self, cell: Cell) -> dict[str, Any]:
        settings = cell.settings
        module = construct(settings["model"], "model")
        found = {"generator_multiply_adds": multiply_adds(module, "generator")}
        found["discriminator_multiply_adds"] = multiply_adds(module, "discriminator")
        return found | train(settings) | {"fid": fid_after(settings)}

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        own = [result for result in results["lightweight"] if result.repeats]
        columns = [
            "block",
            "width",
            "parameters",
            "multiply-adds G",
            "multiply-adds D",
            "images/s",
            "speed-up",
            "FID",
            "n",
        ]
        base = next((r.median("images_per_second") for r in own if _is_plain(r)), None)
        rows = []
        for result in own:
            speed = result.median("images_per_second")
            rows.append(
                [
                    result.settings["block"],
                    f"x {result.settings['multiplier']:g}",
                    f"{result.median('parameters'):,.0f}",
                    f"{result.median('generator_multiply_adds') / 1e6:,.1f} M",
                    f"{result.median('discriminator_multiply_adds') / 1e6:,.1f} M",
                    f"{speed:.1f}",
                    "" if base is None else f"{speed / base:.2f}",
                    f"{result.median('fid'):.0f}",
                    str(len(result.repeats)),
                ]
            )
        notes = (
            [f"FID: fid_digits after {own[0].settings['fid_seconds']:g} s of training on the digits."] if own else []
        )
        return [Table("Blocks and width multipliers of DCGAN", columns, rows, notes)]

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        own = [result for result in results["lightweight"] if result.repeats]
        curves: dict[str, Points] = {}
        for block in dict.fromkeys(result.settings["block"] for result in own):
            mine = [result for result in own if result.settings["block"] == block]
            curves[block] = [(result.median("parameters"), result.median("images_per_second")) for result in mine]
        return [lines("Speed of blocks and widths", curves, "parameters", "images/s", "x")] if curves else []


def _is_plain(result: Result) -> bool:
    return (result.settings["block"], result.settings["multiplier"]) == ("plain", 1.0)


def multiply_adds(module: AdversarialModule, name: str) -> int:
    """Returns the multiply-adds of the forward pass of one image through a network.

    Args:
        module: GAN.
        name: `generator` or the name of a discriminator.
    """
    with torch.device("meta"), torch.no_grad():
        network = module.configure_networks()[name].eval()
        batch = module.dummy_batch(1)
        images = torch.empty(1, module.channels, module.image_size, module.image_size)
        forward = partial(module.generate, network, batch)
        if name != "generator":
            forward = partial(network, images, *module.condition(batch))
        return count_flops(forward) // 2


def fid_after(settings: Mapping[str, Any]) -> float:
    """Returns `fid_digits` of a training on the digits that took some seconds, without the evaluation.

    Args:
        settings: those of the cell.
    """
    module = construct(settings["model"] | {"image_size": 32, "channels": 1}, "model")
    data = Digits(batch_size=settings["batch_size"], image_size=32)
    metrics = GenerativeMetrics(
        DigitsExtractor(), num_samples=max(_FEWEST, settings["fid_samples"]), batch_size=250, cache=False
    )
    limit = timedelta(seconds=max(1.0, settings["fid_seconds"]))
    trainer = quiet_trainer(settings["device"], max_time=limit, max_epochs=-1, max_steps=-1, devices=1)
    trainer.fit(module, datamodule=data)
    return metrics.measure(trainer, module)["metric/fid_digits"]
