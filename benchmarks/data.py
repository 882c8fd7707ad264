"""`lit-gans bench data`: speed of packing and serving images, and the time that a training step waits for data."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table

from benchmarks.jpegs import HEIGHT, WIDTH, write_jpegs
from benchmarks.measure import environment, spread
from benchmarks.report import median, quartiles, report, table_of
from benchmarks.turns import ratios, take_turns
from benchmarks.waiting import waiting_share
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import refuse_below
from lit_gans.data.images import open_picture
from lit_gans.data.packed.datamodule import Placement
from lit_gans.data.packed.writer import available_cores, pack
from lit_gans.data.sources.folder import Folder

_PRESETS = {"full": (5000, 5, 60), "smoke": (64, 2, 4)}  # number of images, rounds, steps
_SMOKE = {"image_size": 16, "batch_size": 8, "generator_width": 8, "discriminator_width": 8}
_LOADER_WORKERS = 2


def data(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    rounds: int | None = None,
    steps: int | None = None,
    placement: Placement = "auto",
    device: Literal["cpu", "cuda"] | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    image_size: int = 64,
    batch_size: int = 64,
    generator_width: int = 64,
    discriminator_width: int = 64,
    seed: int = 0,
) -> dict[str, Any]:
    """Measures packing and serving of generated 178x218 JPEGs, in interleaved rounds.

    Serving: a pass over packed images in memory against torchvision's `ImageFolder` in a `DataLoader` with 2 workers.
    Packing: ours against one process that reads, crops and resizes files sequentially with the same functions.
    Waiting: fraction of time between the end of a DCGAN step in a `Trainer` and the next batch on the device.
    Returns and prints images per second and bytes.

    Args:
        preset: `smoke` limits the sizes and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        rounds: number of rounds of serving and packing; null uses the preset's number.
        steps: number of timed training steps; null uses the preset's number.
        placement: placement of the images during training.
        device, precision: device and precision of the training; a null device uses CUDA if available, otherwise the
            CPU.
        image_size, batch_size: size of the served images and batches.
        generator_width, discriminator_width: as in `DCGAN`.
        seed: seed of all random numbers.
    """
    sizes = {"image_size": image_size, "batch_size": batch_size}
    sizes |= {"generator_width": generator_width, "discriminator_width": discriminator_width}
    if preset == "smoke":
        sizes = {name: min(value, _SMOKE[name]) for name, value in sizes.items()}
    *_, preset_rounds, preset_steps = _PRESETS[preset]
    rounds, steps = preset_rounds if rounds is None else rounds, preset_steps if steps is None else steps
    refuse_below(1, rounds=rounds, steps=steps, **sizes)
    where = chosen_device(device)
    settings: dict[str, Any] = {"preset": preset, "rounds": rounds, "steps": steps}
    settings |= {"precision": precision, "seed": seed}
    with tempfile.TemporaryDirectory() as folder, _without_records_of_packing():
        result = _measure(Path(folder), settings, sizes, placement, where)
    return report(result, [_table(result)], _notes(result), output)


@contextmanager
def _without_records_of_packing() -> Iterator[None]:
    logger = logging.getLogger("lit_gans.data.packed")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _measure(
    folder: Path, settings: dict[str, Any], sizes: dict[str, int], placement: Placement, device: torch.device
) -> dict[str, Any]:
    num, *_ = _PRESETS[settings["preset"]]
    rounds, seed = settings["rounds"], settings["seed"]
    widths = {name: sizes[name] for name in ("generator_width", "discriminator_width")}
    jpegs = write_jpegs(folder / "jpegs", num, seed)
    served: dict[str, Any] = {"image_size": sizes["image_size"], "batch_size": sizes["batch_size"], "seed": seed}
    source = Folder(str(jpegs), cache=str(folder / "cache"), **served)
    return {
        "benchmark": "data",
        **settings,
        **sizes,
        "num_pictures": num,
        "cores": available_cores(),
        **environment(device),
        "packing": _packing(source, folder, rounds),
        "serving": _serving(source, jpegs, rounds),
        "waiting": waiting_share(source, placement, device, settings["steps"], settings["precision"], **widths),
    }


def _race(works: dict[str, Callable[[], Any]], num: int, rounds: int) -> dict[str, Any]:
    """Returns the images per second of the works, and the ratio of the first one's to the second's."""

    def timed(work: Callable[[], Any]) -> Callable[[], float]:
        def speed() -> float:
            start = time.perf_counter()
            work()
            return num / (time.perf_counter() - start)

        return speed

    speeds = take_turns({name: timed(work) for name, work in works.items()}, rounds)
    ours, theirs = speeds.values()
    return {"images_per_second": {name: spread(found) for name, found in speeds.items()}, "ratio": ratios(ours, theirs)}


def _packing(source: Folder, folder: Path, rounds: int) -> dict[str, Any]:
    def ours() -> None:
        path = folder / "packing" / "again.packed"
        shutil.rmtree(path, ignore_errors=True)
        pack(path, source.source(), source.frame, "raise", {"source": "bench", "identity": {}})

    def loop() -> None:
        with (folder / "loop.bin").open("wb") as file:
            for path in source.source().paths:
                file.write(source.frame.fit(open_picture(path, str(path), []), str(path))[0].tobytes())

    return _race({"lit_gans": ours, "one process": loop}, len(source.source()), rounds)


def _serving(source: Folder, jpegs: Path, rounds: int) -> dict[str, Any]:
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    size, batch_size = source.image_size, source.batch_size
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()]
    usual = ImageFolder(str(jpegs), transforms.Compose([*steps, transforms.Normalize(0.5, 0.5)]))
    theirs = DataLoader(usual, batch_size, shuffle=True, drop_last=True, num_workers=_LOADER_WORKERS)
    common: dict[str, Any] = {"image_size": size, "batch_size": batch_size, "seed": source.seed}
    ours = Folder(str(jpegs), cache=str(source.cache), placement="memory", **common).train_dataloader()

    def pass_over(loader: Any) -> Callable[[], None]:
        def work() -> None:
            for batch in loader:  # both end as floats in [-1, 1]
                if isinstance(batch, dict):
                    batch["image"].float().div_(127.5).sub_(1)

        return work

    return _race({"lit_gans": pass_over(ours), "ImageFolder": pass_over(theirs)}, len(ours) * batch_size, rounds)


# ---- the report


def _table(result: dict[str, Any]) -> Table:
    title = f"data, {result['num_pictures']} JPEGs of {WIDTH}x{HEIGHT} to {result['image_size']}"
    table = table_of(title, "", "images/s", "quartiles", "ratio", "quartiles")
    for kind in ("serving", "packing"):
        for name, speed in result[kind]["images_per_second"].items():
            ratio = result[kind]["ratio"]
            of_ours = (median(ratio, ".2f"), quartiles(ratio, ".2f")) if name == "lit_gans" else ()
            table.add_row(f"{kind}, {name}", median(speed), quartiles(speed), *of_ours)
    return table


def _notes(result: dict[str, Any]) -> list[str]:
    waiting = result["waiting"]
    return [
        f"on {result['device_name']}, {result['cores']} cores, torch {result['torch']}",
        f"a DCGAN step ({waiting['placement']}, batch {result['batch_size']}, {result['precision']}) waits"
        f" {100 * waiting['share']:.2f} % of its time for data, {waiting['images_per_second']:.0f} images/s",
    ]
