"""`lit-gans bench data`: how fast images are packed and served, and whether a training step ever waits for them."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from PIL import Image
from rich.console import Console
from rich.table import Table

from lit_gans.benchmark.measure import MEBIBYTE, environment, now, spread
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import open_picture
from lit_gans.data.packed.datamodule import Placement
from lit_gans.data.packed.writer import available_cores, pack
from lit_gans.data.sources.folder import Folder
from lit_gans.models.dcgan import DCGAN

_WIDTH, _HEIGHT = 178, 218  # CelebA's
_PRESETS = {"full": (5000, (1000, 10_000), 5, 60), "smoke": (64, (32, 128), 2, 4)}
_SMOKE = {"image_size": 16, "batch_size": 8, "generator_width": 8, "discriminator_width": 8}
_LOADER_WORKERS = 2
_LOOK = 0.02  # seconds between two looks at the memory


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
    """Measures packing and serving of JPEGs of 178x218 that it writes itself, in rounds that take turns.

    Serving: a pass over packed images in memory against torchvision's `ImageFolder` in a `DataLoader` with 2 workers.
    Packing: ours against one process that reads, cuts and resizes one picture after the other with the same functions.
    Waiting: the time between the end of a step of DCGAN in a `Trainer` and the next batch on the device, as a share.
    Memory: by how much a packing of few and of many pictures grows, each in a process of its own.

    Args:
        preset: `smoke` caps the sizes and ends in seconds: its times mean nothing.
        output: JSON file to write as well.
        rounds: of serving and packing; null is the preset's number.
        steps: of the training that is timed; null is the preset's number.
        placement: of the images in the training.
        device, precision: of the training; null is CUDA where there is one, else the CPU.
        image_size, batch_size: of what is served.
        generator_width, discriminator_width: as in `DCGAN`.
        seed: of everything.

    Returns:
        What the JSON holds; images a second, shares and bytes.
    """
    sizes = {"image_size": image_size, "batch_size": batch_size}
    sizes |= {"generator_width": generator_width, "discriminator_width": discriminator_width}
    if preset == "smoke":
        sizes = {name: min(value, _SMOKE[name]) for name, value in sizes.items()}
    num, in_memory, preset_rounds, preset_steps = _PRESETS[preset]
    rounds, steps = rounds or preset_rounds, steps or preset_steps
    if min(rounds, steps, *sizes.values()) < 1:
        raise RefusedInput(f"{rounds=}, {steps=} and the sizes must be at least 1.")
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedInput("device=cuda: torch finds no CUDA device here; use device=cpu.")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = {"preset": preset, "rounds": rounds, "steps": steps, "precision": precision, "seed": seed}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pictures(folder / "pictures", num, seed)
        common = {"image_size": sizes["image_size"], "batch_size": sizes["batch_size"], "seed": seed}
        source = _quiet(lambda: Folder(str(folder / "pictures"), cache=str(folder / "cache"), **common))
        result = {
            "benchmark": "data",
            **settings,
            **sizes,
            "num_pictures": num,
            "cores": available_cores(),
            **environment(where),
            "packing": _packing(source, folder, rounds),
            "serving": _serving(source, folder, rounds),
            "waiting": _waiting(source, placement, where, steps, sizes, precision, seed),
            "memory_of_packing": {n: _memory_of_packing(folder, n, source.image_size, seed) for n in in_memory},
        }
    _print_table(result)
    print(json.dumps(result))
    if output is not None:
        Path(output).write_text(json.dumps(result, indent=2) + "\n")
    return result


def write_pictures(folder: Path, num: int, seed: int) -> None:
    """Writes JPEGs of smooth colours with some noise, which compress about as photographs do."""
    generator = np.random.default_rng(seed)
    (folder / "all").mkdir(parents=True, exist_ok=True)
    for number in range(num):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 10, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = (pixels + generator.integers(-8, 9, pixels.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "all" / f"{number:06d}.jpg", quality=90)


def _quiet(work: Callable[[], Any]) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return work()


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _packing(source: Folder, folder: Path, rounds: int) -> dict[str, Any]:
    def ours() -> None:
        path = folder / "packing" / "again.packed"
        path.unlink(missing_ok=True)
        _quiet(lambda: pack(path, source.source(), source.frame, "raise", {"source": "bench", "identity": {}}))

    def loop() -> None:
        with (folder / "loop.bin").open("wb") as file:
            for path in source.source().paths:
                file.write(source.frame.fit(open_picture(path, str(path), []), str(path))[0].tobytes())

    num = len(source.source())
    return _race({"lit_gans": (ours, num), "one process": (loop, num)}, rounds, "one process")


def _race(works: dict[str, tuple[Callable[[], Any], int]], rounds: int, against: str) -> dict[str, Any]:
    """Lets works take turns; ratios are of the same round, so that a machine that slows down slows all."""
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works)[:: 1 if number % 2 else -1]:
            work, num = works[name]
            speeds[name].append(num / _seconds(work))
    ratios = [ours / theirs for ours, theirs in zip(speeds["lit_gans"], speeds[against], strict=True)]
    return {"images_per_second": {name: spread(values) for name, values in speeds.items()}, "ratio": spread(ratios)}


def _serving(source: Folder, folder: Path, rounds: int) -> dict[str, Any]:
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    size = source.image_size
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()]
    usual = ImageFolder(str(folder / "pictures"), transforms.Compose([*steps, transforms.Normalize(0.5, 0.5)]))
    settings = {"batch_size": source.batch_size, "shuffle": True, "drop_last": True}
    theirs = DataLoader(usual, num_workers=_LOADER_WORKERS, **settings)
    memory = Folder(str(source.root), cache=str(source.cache), placement="memory", **_common(source))
    _quiet(lambda: memory.packed)
    ours = memory.train_dataloader()

    def floats(loader: Any) -> Callable[[], None]:
        def work() -> None:
            for batch in loader:  # both end as floats in [-1, 1]
                if isinstance(batch, dict):
                    batch["image"].float().div_(127.5).sub_(1)

        return work

    num = len(ours) * source.batch_size
    return _race({"lit_gans": (floats(ours), num), "ImageFolder": (floats(theirs), num)}, rounds, "ImageFolder")


def _common(source: Folder) -> dict[str, Any]:
    return {"image_size": source.image_size, "batch_size": source.batch_size, "seed": source.seed}


class _Waiting(Callback):
    """Times steps and what lies between them: the fetch of the batch and its way to the device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.ended = device, 0.0
        self.fetches: list[float] = []
        self.steps: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        self.started = now(self.device)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append(now(self.device) - self.started)


class _TimedLoader:
    """A loader whose fetches are timed; it yields what the other yields."""

    def __init__(self, loader: Any, waiting: _Waiting) -> None:
        self.loader, self.waiting = loader, waiting

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waiting.fetches.append(time.perf_counter() - start)
            yield batch


def _waiting(
    source: Folder,
    placement: Placement,
    device: torch.device,
    steps: int,
    sizes: dict[str, int],
    precision: str,
    seed: int,
) -> dict[str, Any]:
    waiting = _Waiting(device)

    def timed(work: Callable, *arguments: Any) -> Any:
        start = now(device)
        result = work(*arguments)
        waiting.fetches[-1] += now(device) - start
        return result

    class Timed(Folder):
        def train_dataloader(self) -> Any:
            return _TimedLoader(super().train_dataloader(), waiting)

        def transfer_batch_to_device(self, *arguments: Any) -> Any:
            return timed(super().transfer_batch_to_device, *arguments)

        def on_after_batch_transfer(self, *arguments: Any) -> Any:
            return timed(super().on_after_batch_transfer, *arguments)

        @property
        def packed_path(self) -> Path:
            return source.packed_path

    served = Timed(str(source.root), cache=str(source.cache), placement=placement, **_common(source))
    arguments = {name: value for name, value in sizes.items() if name != "batch_size"}
    trainer = Trainer(
        max_steps=steps + 1,
        max_epochs=-1,
        accelerator=device.type,
        devices=1,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[waiting],
    )
    _quiet(lambda: trainer.fit(DCGAN(seed=seed, **arguments), datamodule=served))
    fetches, seconds = waiting.fetches[1 : steps + 1], waiting.steps[1:]  # the first begins an epoch and a training
    return {
        "placement": served.placed(device),
        "step_seconds": spread(seconds),
        "fetch_seconds": spread(fetches),
        "share": sum(fetches) / (sum(fetches) + sum(seconds)),
        "images_per_second": sizes["batch_size"] * len(seconds) / (sum(fetches) + sum(seconds)),
    }


_PACK_ALONE = """
import sys
from lit_gans.data.sources.folder import Folder
data = Folder(sys.argv[1], cache=sys.argv[2], image_size=int(sys.argv[3]))
print(flush=True)
input()
data.prepare_data()
"""


def _memory_of_packing(folder: Path, num: int, image_size: int, seed: int) -> int | None:
    """Returns by how many bytes a process that packs `num` pictures, with those that it starts, grows at most.

    Looks every few milliseconds, and counts shared pages once. None without Linux's /proc.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    pictures = folder / f"pictures_{num}"
    write_pictures(pictures, num, seed)
    arguments = [str(pictures), str(folder / "cache"), str(image_size)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _PACK_ALONE, *arguments], **pipes) as process:
        process.stdout.readline()  # imports are done
        before = most = _held(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        while process.poll() is None:
            most = max(most, _held(process.pid))
            time.sleep(_LOOK)
    if process.returncode:
        raise RuntimeError(f"packing {num} pictures ended with exit code {process.returncode}.")
    return most - before


def _held(pid: int) -> int:
    """Returns the bytes that a process and all that it started hold; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration):
        return 0
    return own + sum(_held(int(child)) for child in children)


def _print_table(result: dict[str, Any]) -> None:
    table = Table(title=f"data, {result['num_pictures']} JPEGs of {_WIDTH}x{_HEIGHT} to {result['image_size']}")
    for column in ("", "images/s", "quartiles", "ratio", "quartiles"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for part in ("serving", "packing"):
        for name, speed in result[part]["images_per_second"].items():
            ratio = result[part]["ratio"] if name == "lit_gans" else None
            table.add_row(
                f"{part}, {name}",
                f"{speed['median']:.0f}",
                f"{speed['lower_quartile']:.0f} .. {speed['upper_quartile']:.0f}",
                f"{ratio['median']:.2f}" if ratio else "",
                f"{ratio['lower_quartile']:.2f} .. {ratio['upper_quartile']:.2f}" if ratio else "",
            )
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    waiting = result["waiting"]
    print(f"on {result['device_name']}, {result['cores']} cores, torch {result['torch']}")
    print(
        f"a DCGAN step ({waiting['placement']}, batch {result['batch_size']}, {result['precision']}) waits"
        f" {100 * waiting['share']:.2f} % of its time for data, {waiting['images_per_second']:.0f} images/s"
    )
    for num, held in result["memory_of_packing"].items():
        if held is not None:
            print(f"packing {num} pictures holds at most {held / MEBIBYTE:.0f} MiB more than before")
