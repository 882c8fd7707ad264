"""`python -m benchmarks data`: speed of packing and serving images, and the time that a step waits for data."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.common import environment, quiet_trainer, ratios, report, shown, spread, take_turns
from benchmarks.jpegs import HEIGHT, WIDTH, write_jpegs
from lit_gans.callbacks import Throughput
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import refuse_below
from lit_gans.data.decoding import read_picture
from lit_gans.data.packed.datamodule import Placement
from lit_gans.data.packed.writer import available_cores, pack
from lit_gans.data.sources.folder import Folder
from lit_gans.models.dcgan import DCGAN

_PRESETS = {"full": (5000, 5, 60), "smoke": (64, 2, 4)}  # number of images, rounds, steps
_SMOKE = {"image_size": 16, "batch_size": 8, "width": 8}
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
    width: int = 64,
    seed: int = 0,
) -> dict[str, Any]:
    """Measures packing and serving of generated 178x218 JPEGs, in interleaved rounds.

    Serving: a pass over packed images in memory against torchvision's `ImageFolder` in a `DataLoader` with 2 workers.
    Packing: ours against one process that reads, crops and resizes files sequentially with the same functions.
    Waiting: share of a DCGAN's training in which it waits for the next batch. Prints images per second.

    Args:
        preset: `smoke` limits the sizes and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        rounds: number of rounds of serving and packing; null uses the preset's number.
        steps: number of timed training steps; null uses the preset's number.
        placement: placement of the images during training.
        device, precision: device and precision of the training; a null device uses CUDA if available.
        image_size, batch_size: size of the served images and batches.
        width: width of the networks, in channels.
        seed: seed of all random numbers.
    """
    sizes = {"image_size": image_size, "batch_size": batch_size, "width": width}
    if preset == "smoke":
        sizes = {name: min(value, _SMOKE[name]) for name, value in sizes.items()}
    num, *numbers = _PRESETS[preset]
    rounds, steps = (known if given is None else given for known, given in zip(numbers, (rounds, steps), strict=True))
    refuse_below(1, rounds=rounds, steps=steps, **sizes)
    where = chosen_device(device)
    logging.getLogger("lit_gans.data.packed").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jpegs = write_jpegs(folder / "jpegs", num, seed)
        served: dict[str, Any] = {"image_size": sizes["image_size"], "batch_size": sizes["batch_size"], "seed": seed}
        served |= {"cache": str(folder / "cache")}
        source = Folder(str(jpegs), placement="memory", **served)
        found = {"packing": _packing(source, folder, rounds), "serving": _serving(source, jpegs, rounds)}
        throughput = Throughput()
        trainer = quiet_trainer(
            where.type,
            devices=1,
            max_steps=2 * steps,  # the first half warms up
            log_every_n_steps=steps,
            max_epochs=-1,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            callbacks=[throughput],
        )
        widths = {"generator_width": sizes["width"], "discriminator_width": sizes["width"]}
        module = DCGAN(seed=seed, image_size=sizes["image_size"], **widths)
        trainer.fit(module, datamodule=Folder(str(jpegs), placement=placement, **served))
        waiting = float(trainer.callback_metrics["utilization/waiting"])
    result = {"benchmark": "data", "preset": preset, "rounds": rounds, "steps": steps, "precision": precision, **sizes}
    result |= {"num_pictures": num, "cores": available_cores(), **environment(where), **found}
    result |= {"waiting": waiting, "images_per_second": throughput.images_per_second}
    title = f"data, {num} JPEGs of {WIDTH}x{HEIGHT} to {sizes['image_size']}"
    notes = [
        f"on {result['device_name']}, {result['cores']} cores, torch {result['torch']}",
        f"a DCGAN step ({placement}, batch {sizes['batch_size']}, {precision}) waits {100 * waiting:.2f} % of its time"
        f" for data, {throughput.images_per_second:.0f} images/s",
    ]
    return report(result, {title: _rows(found)}, notes, output)


def _race(works: dict[str, Callable[[], Any]], num: int, rounds: int) -> dict[str, Any]:
    """Returns the images per second of the works, and the ratio of the first one's to the second's."""

    def speed(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        return num / (time.perf_counter() - start)

    speeds = take_turns({name: lambda work=work: speed(work) for name, work in works.items()}, rounds)
    ours, theirs = speeds.values()
    return {"images_per_second": {name: spread(found) for name, found in speeds.items()}, "ratio": ratios(ours, theirs)}


def _packing(source: Folder, folder: Path, rounds: int) -> dict[str, Any]:
    packed = iter(range(rounds))

    def ours() -> None:
        path = folder / f"packing/{next(packed)}.packed"
        pack(path, source.source(), source.frame, "raise", {"source": "bench", "identity": {}})

    def loop() -> None:
        with (folder / "loop.bin").open("wb") as file:
            for path in source.source().paths:
                file.write(source.frame.fit(read_picture(path, []), str(path), []).tobytes())

    return _race({"lit_gans": ours, "one process": loop}, len(source.source()), rounds)


def _serving(source: Folder, jpegs: Path, rounds: int) -> dict[str, Any]:
    size, batch_size = source.image_size, source.batch_size
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()]
    usual = ImageFolder(str(jpegs), transforms.Compose([*steps, transforms.Normalize(0.5, 0.5)]))
    theirs = DataLoader(usual, batch_size, shuffle=True, drop_last=True, num_workers=_LOADER_WORKERS)
    ours = source.train_dataloader()

    def pass_over(loader: Any) -> None:
        for batch in loader:  # both end as floats in [-1, 1]
            if isinstance(batch, dict):
                batch["image"].float().div_(127.5).sub_(1)

    works = {"lit_gans": lambda: pass_over(ours), "ImageFolder": lambda: pass_over(theirs)}
    return _race(works, len(ours) * batch_size, rounds)


def _rows(found: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    for kind, each in found.items():
        for name, speed in each["images_per_second"].items():
            ratio = shown(each["ratio"], ".2f") if name == "lit_gans" else ""
            rows.append({"": f"{kind}, {name}", "images/s": shown(speed), "ratio": ratio})
    return rows
