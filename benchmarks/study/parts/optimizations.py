"""Optimizations: each one alone against the same baseline, with time and the losses after the same images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.measure import MEBIBYTE
from benchmarks.report import median, quartiles
from benchmarks.study.contract import Cell, Part, Picture, Result, Table
from benchmarks.study.plotting import figure, picture
from benchmarks.study.settings import Settings
from benchmarks.study.training import CELEBA_IMAGES, model_node, train

_GANS = ("dcgan", "sngan", "wgan_gp", "gan", "pix2pix")
_BASELINE = "baseline"
_DDP: dict[str, Any] = {"name": "network_ddp"}
_ROW = 0.19  # inches of a bar
_STAGES = (0, 1, 2, 3)
# names of the techniques in the Colossal-AI study, and ours
_COLOSSAL = {
    "one process": "one process",
    "data parallel": _BASELINE,
    "mixed precision": "precision bf16",
    "accumulation": "accumulation 4",
    "clipping": "clipping 2",
    "ZeRO": "ZeRO 2",
}
_NOTES = [
    "The baseline is `strategy=ddp` in fp32. Every row trains from the same weights on the same images in the same"
    " order; the losses are those after all of them. Accumulation makes a quarter of the steps, of four"
    " microbatches each.",
    "Bucket sizes are the counterpart of Horovod's fusion buffer. Its cycle time has none: Horovod looks for gradients"
    " that are ready in fixed intervals, DDP reduces a bucket as soon as its last gradient is ready.",
]


class Optimizations(Part):
    """Trains the studies' GANs with one setting changed at a time."""

    title = "Optimizations"
    question = "Which setting makes a step faster, and do the losses after the same images stay the same?"

    def cells(self, settings: Settings) -> list[Cell]:
        most = max(settings.ranks)
        gans = [gan for gan in _GANS if gan in settings.gans]
        return [
            cell
            for gan in gans
            for name, changed in variants(settings).items()
            for cell in [self._cell(settings, gan, name, changed, 1 if name == "one process" else most)]
        ]

    @staticmethod
    def _cell(settings: Settings, gan: str, name: str, changed: Mapping[str, Any], ranks: int) -> Cell:
        model = model_node(gan, settings.small_image_size, settings.width, seed=settings.seed)
        model = model | changed.get("model", {})
        split = int(model["accumulate_gradients"])
        batch_size = changed.get("batch_size", settings.batch_size)
        values: dict[str, Any] = {
            "gan": gan,
            "variant": name,
            "device": settings.device,
            "batch_size": batch_size,
            "warmup": 1,
            "steps": _units(settings) * max(settings.ranks) // (split * ranks) - 1,
            "strategy": changed.get("strategy", _DDP),
            "precision": changed.get("precision", "32-true"),
            "model": model,
        }
        if "threads" in changed:
            values["threads"] = changed["threads"]
        reason = "one process has nobody to communicate with." if ranks == 1 and changed.get("several") else None
        if model["compile"] and not settings.compiles:
            reason = "preset=smoke does not compile, which takes a minute."
        return Cell("optimizations", f"{gan}, {name}", values, ranks, reason=reason)

    def measure(self, cell: Cell) -> dict[str, Any]:
        if "threads" in cell.settings:  # otherwise each process has its share
            torch.set_num_threads(cell.settings["threads"])
        return train(cell.settings)

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        own = [result for result in results["optimizations"] if result.repeats]
        gans = list(dict.fromkeys(result.settings["gan"] for result in own))
        columns = ["setting", "batch each", "images/s", "to baseline", "s an epoch", "loss D", "loss G", "MiB", "n"]
        tables = [Table(gan, columns, _rows(own, gan), _NOTES if gan == gans[0] else ()) for gan in gans]
        return [*tables, _binding(own), _colossal(own)]

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        own = [result for result in results["optimizations"] if result.repeats]
        pictures = []
        for gan in dict.fromkeys(result.settings["gan"] for result in own):
            found = {r.settings["variant"]: relative_speed(r, own) for r in own if r.settings["gan"] == gan}
            known = {name: ratio for name, ratio in found.items() if ratio is not None}
            drawn = figure()
            (axes,) = drawn.axes
            axes.barh(list(known)[::-1], list(known.values())[::-1])
            axes.axvline(1, color="black", linewidth=0.8)
            drawn.set_figheight(1 + _ROW * len(known))
            axes.margins(y=0.01)
            axes.tick_params(axis="y", labelsize="small")
            axes.set(xlabel="speed relative to the baseline", title=gan)
            pictures.append(picture(f"Speed of {gan} relative to its baseline", drawn))
        return pictures


def _units(settings: Settings) -> int:
    """Returns the number of steps of the baseline, which four microbatches divide into at least two steps."""
    return 8 * math.ceil(settings.fixed_steps / 8)


def variants(settings: Settings) -> dict[str, dict[str, Any]]:
    """Returns what each setting changes of the baseline, by its name.

    Args:
        settings: settings of the study.
    """
    found: dict[str, dict[str, Any]] = {_BASELINE: {}, "one process": {"strategy": {"name": "auto"}}}
    for size in (1, 5, 100):
        found[f"bucket {size} MiB"] = {"strategy": _DDP | {"bucket_cap_mb": float(size)}, "several": True}
    for compression in ("fp16", "bf16", "powersgd"):
        changed = {"strategy": _DDP | {"gradient_compression": compression}, "several": True}
        found[f"compression {compression}"] = changed
    found["hierarchical"] = {"strategy": _DDP | {"hierarchical": True}, "several": True}
    found["precision bf16"] = {"precision": "bf16-mixed"}
    found["precision fp16"] = {"precision": "16-mixed"}
    found["accumulation 4"] = {"model": {"accumulate_gradients": 4}}
    found["clipping 2"] = {"model": {"clip_gradients": 2.0}}
    found["compile"] = {"model": {"compile": True}}
    found["without channels_last"] = {"model": {"channels_last": False}}
    found["bound to cores"] = {"strategy": _DDP | {"bind": "cores"}, "several": True}
    found["all cores in each"] = {"threads": settings.cores, "several": True}
    found["fsdp"] = {"strategy": {"name": "network_fsdp"}, "several": True}
    for stage in _STAGES:
        found[f"ZeRO {stage}"] = {"strategy": {"name": "network_deepspeed", "stage": stage}}
    offload = {"name": "network_deepspeed", "stage": 2, "offload_optimizer": True}
    found["ZeRO 2, offload"] = {"strategy": offload}
    for batch_size in settings.zero_batch_sizes:
        if batch_size != settings.batch_size:
            found[f"batch {batch_size}"] = {"batch_size": batch_size}
            for stage in _STAGES:
                zero = {"strategy": {"name": "network_deepspeed", "stage": stage}, "batch_size": batch_size}
                found[f"batch {batch_size}, ZeRO {stage}"] = zero
    return found


def _baseline(result: Result, others: Sequence[Result]) -> Result | None:
    """Returns the baseline with the same GAN and batch size."""
    for other in others:
        same = all(other.settings[key] == result.settings[key] for key in ("gan", "batch_size"))
        if same and other.settings["variant"] in (_BASELINE, f"batch {result.settings['batch_size']}"):
            return other
    return None


def relative_speed(result: Result, others: Sequence[Result]) -> float | None:
    """Returns the speed relative to that of the baseline with the same GAN and batch size; None if there is none.

    Args:
        result: result of a setting.
        others: all results of the part.
    """
    baseline = _baseline(result, others)
    if baseline is None:
        return None
    return result.median("images_per_second") / baseline.median("images_per_second")


def losses(result: Result) -> tuple[str, str]:
    """Returns the losses of the discriminators and of the generator as text."""
    names = [name for name in result.repeats[0] if name.startswith("loss/") and name != "loss/generator"]
    return " ".join(f"{result.median(name):.3f}" for name in names), f"{result.median('loss/generator'):.3f}"


def _rows(results: Sequence[Result], gan: str) -> list[list[str]]:
    rows = []
    for result in results:
        if result.settings["gan"] == gan:
            ratio = relative_speed(result, results)
            rows.append(
                [
                    result.settings["variant"],
                    str(result.settings["batch_size"]),
                    f"{result.median('generator_images_per_second'):.1f}",
                    "" if ratio is None else f"{ratio:.2f}",
                    f"{CELEBA_IMAGES / result.median('generator_images_per_second'):,.0f}",
                    *losses(result),
                    f"{result.median('peak_memory') / MEBIBYTE:.0f}",
                    str(len(result.repeats)),
                ]
            )
    return rows


def _binding(results: Sequence[Result]) -> Table:
    """Returns the table of the processes that share a machine's cores: by the system, by threads, or bound."""
    found = {(result.settings["gan"], result.settings["variant"]): result for result in results}
    rows = []
    for gan in dict.fromkeys(result.settings["gan"] for result in results):
        own = [found.get((gan, name)) for name in ("one process", "all cores in each", _BASELINE, "bound to cores")]
        ratio = relative_speed(own[-1], results) if own[-1] else None
        rows.append([gan, *("-" if each is None else _speed(each) for each in own), f"{ratio:.2f}" if ratio else "-"])
    columns = ["images/s", "one process", "all cores in each", "its share of threads", "bound to cores", "to its share"]
    notes = [
        "Median and quartiles. All cores in each: every process computes with as many threads as the machine has cores,"
        " as torch does by itself. Its share of threads: the baseline, with the cores divided among the processes."
        " Bound to cores: the same, and each stays on cores of its own."
    ]
    return Table("Processes and cores", columns, rows, notes)


def _speed(result: Result) -> str:
    speed = result.spread("generator_images_per_second")
    return f"{median(speed, '.1f')} ({quartiles(speed, '.1f')})"


def _colossal(results: Sequence[Result]) -> Table:
    """Returns the table of the Colossal-AI study: its six techniques for the first GAN and pix2pix."""
    found = {(result.settings["gan"], result.settings["variant"]): result for result in results}
    rows = []
    for gan in ("gan", "pix2pix"):
        for technique, variant in _COLOSSAL.items():
            result = found.get((gan, variant))
            if result is not None:
                epoch = CELEBA_IMAGES / result.median("generator_images_per_second")
                rows.append([gan, technique, f"{epoch:,.0f}", *losses(result)])
    columns = ["GAN", "technique", "s an epoch of 202,599 images", "loss D", "loss G"]
    return Table("The techniques of the Colossal-AI study", columns, rows)
