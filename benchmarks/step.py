"""`python -m benchmarks step`: cost of a training step, compared with loops without Lightning."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks.common import MEBIBYTE, environment, matrix_product_rate, now, ratios, report, shown, spread, turn_order
from benchmarks.loops import BareLoop, Loop, MimicryLoop, TutorialLoop
from lit_gans.common._compat.torch import TorchDispatchMode
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.operations import count_operations
from lit_gans.common.precision import tf32
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from lit_gans.training.module import AdversarialModule

GANS = ("dcgan", "sngan", "wgan_gp", "d2gan")
_STEPS = {"full": 20, "smoke": 4}
_SMOKE = {"image_size": 16, "batch_size": 8, "width": 8}
_TINY = {"image_size": 16, "channels": 1, "batch_size": 2, "width": 2}
_NUM_BATCHES = 4
_EMA_DECAY = 0.999
_FLOP_BATCH = 2  # the count is proportional to the batch
# relative, between the losses of the first step
_TOLERANCE = {("fp32", "cpu"): 1e-4, ("fp32", "cuda"): 2e-3, ("bf16", "cpu"): 2e-2, ("bf16", "cuda"): 2e-2}


def step(
    gans: list[str] = ["dcgan"],  # noqa: B006 - read only
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    steps: int | None = None,
    warmup: int = 3,
    loops: list[str] = ["tutorial", "bare"],  # noqa: B006
    tiny: bool = False,
    mimicry: str | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    compile: bool = False,
    device: Literal["cpu", "cuda"] | None = None,
    image_size: int = 64,
    channels: int = 3,
    width: int | None = None,
    batch_size: int = 64,
    log_every_n_steps: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Times interleaved loops of a GAN's training step, inside the loader of one real training with default callbacks.

    `lit_gans` is the training of `lit-gans train` with its default callbacks, `metrics.csv` and no metrics. `tutorial`
    is the usual loop of tutorials with torch's defaults, float32 and uncompiled. `bare` runs our step and the update of
    the averaged generator without Lightning. Both loops have the same images, latents and initial weights as
    `lit_gans`. `mimicry` is torch-mimicry's own step. Ratios and differences are computed within an iteration. Prints
    medians and quartiles, and the number of operations in a step, without views.

    Args:
        gans: names of the GANs: `dcgan`, `sngan`, `wgan_gp`, `d2gan`.
        preset: `smoke` limits the sizes and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        steps: number of timed iterations; null uses the preset's number.
        warmup: number of warm-up iterations.
        loops: loops to compare with `lit_gans`: `tutorial`, `bare`.
        tiny: whether to use a single thread and networks so small that almost only the host's time remains.
        mimicry: folder of the unpacked source package of torch-mimicry, whose SNGAN and WGAN-GP for 32x32 are
            interleaved, too.
        precision, compile: precision and compilation of `bare` and `lit_gans`.
        device: device to compute on; null uses CUDA if available, otherwise the CPU.
        image_size, channels: size and number of channels of the images.
        width: width of the networks in channels; null uses the width in the paper.
        batch_size: number of images per discriminator step.
        log_every_n_steps: number of iterations between two rows of the log.
        seed: seed of weights, images and latents.
    """
    for key, given, known in (("gans", gans, GANS), ("loops", loops, ("tutorial", "bare"))):
        if not {*given} <= {*known}:
            raise RefusedInput(f"{key}={given}: choose from {', '.join(known)}.")
    if mimicry is not None and (image_size != 32 or channels != 3 or not {*gans} <= {"sngan", "wgan_gp"}):
        raise RefusedInput("mimicry has networks for --gans=[sngan,wgan_gp] --image_size=32 --channels=3.")
    sizes: dict[str, Any] = {"image_size": image_size, "channels": channels, "batch_size": batch_size, "width": width}
    if preset == "smoke":
        sizes |= {name: min(sizes[name] or value, value) for name, value in _SMOKE.items()}
    if tiny:
        sizes |= _TINY
        torch.set_num_threads(1)
    steps = _STEPS[preset] if steps is None else steps
    refuse_below(1, steps=steps, warmup=warmup, log_every_n_steps=log_every_n_steps, batch_size=batch_size)
    where = chosen_device(device)
    settings = {"steps": steps, "warmup": warmup, "precision": precision, "compile": compile, "seed": seed}
    settings |= {"loops": loops, "mimicry": mimicry, "log_every_n_steps": log_every_n_steps}
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rate = matrix_product_rate(where, dtype, 256 if preset == "smoke" else 8192 if where.type == "cuda" else 2048)
    found: dict[str, Any] = {}
    for gan in gans:
        found[gan] = _measure(gan, sizes, settings, where)
        if found[gan]["steps"] < steps:  # a signal stopped the training; the previous measurements are printed
            break
    result = {"benchmark": "step", "preset": preset, **settings, **sizes, **environment(where)}
    result |= {"matrix_product": rate, "gans": found}
    kind = ", tiny networks" if tiny else f", {sizes['image_size']}x{sizes['image_size']}, batch {sizes['batch_size']}"
    tables = {f"{gan}{kind}, {precision}{', compiled' * compile}": _rows(each, rate) for gan, each in found.items()}
    return report(result, tables, _notes(result), output)


def _built(
    gan: str, sizes: Mapping[str, Any], settings: Mapping[str, Any], device: torch.device, *overrides: str
) -> Any:
    """Returns the module and the trainer of a training with the default callbacks and a constant learning rate."""
    names = [f"model={gan}", "data=digits", "metrics=none", "logger=csv", f"precision={settings['precision']}"]
    names += [f"schedule@model.{name}_optimizer.schedule=constant" for name in ("generator", "discriminator")]
    values = {"data.image_size": sizes["image_size"], "data.channels": sizes["channels"], "seed": settings["seed"]}
    values |= {"trainer.accelerator": device.type, "trainer.devices": 1, "callbacks.ema.decay": _EMA_DECAY}
    fewest = settings["warmup"] + settings["steps"]  # so that short runs log, too
    values |= {"trainer.log_every_n_steps": min(settings["log_every_n_steps"], fewest)}
    if gan == "wgan_gp":  # the work of the other loops; 256 is mimicry's width
        values |= {"model.generator_batch_multiple": 1, "model.dequantize": "false", "model.generator_width": 256}
    if sizes["width"] is not None:
        values |= {"model.generator_width": sizes["width"], "model.discriminator_width": sizes["width"]}
    with contextlib.redirect_stdout(io.StringIO()):
        module, _, trainer = build(compose(*names, *(f"{key}={value}" for key, value in values.items()), *overrides))
    return module, trainer


def _measure(gan: str, sizes: dict[str, Any], settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    num = settings["warmup"] + settings["steps"] + 1  # the last step of `lit_gans` is not timed

    def make(*overrides: str) -> AdversarialModule:
        module: AdversarialModule = _built(gan, sizes, settings, device, *overrides)[0]
        return module

    def loops(device: torch.device) -> dict[str, Loop]:
        found: dict[str, Loop] = {}
        if "tutorial" in settings["loops"]:
            found["tutorial"] = TutorialLoop(make("model.channels_last=false").to(device))
        if "bare" in settings["loops"]:
            bare = make(f"model.compile={str(settings['compile']).lower()}").to(device)
            found["bare"] = BareLoop(bare, bf16=settings["precision"] == "bf16", ema_decay=_EMA_DECAY)
        if settings["mimicry"] is not None:
            found["mimicry"] = MimicryLoop(settings["mimicry"], gan, bare_module.n_critic, device)
        return found

    bare_module = make()
    shape = (bare_module.n_critic, bare_module.channels, bare_module.image_size, bare_module.image_size)
    few = torch.zeros(_FLOP_BATCH * shape[0], *shape[1:])
    flops, operations = {}, {}
    for name, loop in loops(torch.device("cpu")).items():
        flops[name] = count_flops(lambda loop=loop: loop.step(few)) / _FLOP_BATCH
        operations[name] = count_operations(lambda loop=loop: loop.step(few))  # now the optimizers have a state
    generator = torch.Generator().manual_seed(settings["seed"])
    shape = (sizes["batch_size"] * shape[0], *shape[1:])
    batches = [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(_NUM_BATCHES)]
    by_hand = loops(device)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        places = f"trainer.default_root_dir={folder}", f"trainer.max_steps={num}"
        module, trainer = _built(
            gan, sizes, settings, device, *places, f"model.compile={str(settings['compile']).lower()}"
        )
        race = Race(by_hand, module, batches, num)
        with tf32(settings["precision"] == "bf16"):  # all loops as the training step of lit_gans
            trainer.fit(module, race)
    bare = by_hand.get("bare")
    rounds = min(map(len, race.seconds.values()))  # fewer than requested if a signal stopped the training
    timed = slice(settings["warmup"], min(rounds, settings["warmup"] + settings["steps"]))
    if timed.start >= timed.stop:
        raise RefusedInput(f"{gan}: the training was stopped after {rounds} steps, before any was timed.")
    seconds = {name: times[timed] for name, times in race.seconds.items()}
    processor = {name: times[timed] for name, times in race.processor_seconds.items()}
    for counts in (flops, operations):
        counts |= {"lit_gans": counts["bare"]} if "bare" in counts else {}
    tolerance = _TOLERANCE[settings["precision"], device.type]
    return {
        "steps": timed.stop - timed.start,
        "loops": {
            name: {
                "seconds": spread(seconds[name]),
                "processor_seconds": spread(processor[name]),
                "images_per_second": len(batches[0]) / spread(seconds[name])["median"],
                "flops_per_step": flops.get(name, 0) * sizes["batch_size"],
                "operations_per_step": operations.get(name, 0),
                "peak_step_memory": race.memory.get(name),
                **{f"speedup_over_{other}": ratios(seconds[other], seconds[name]) for other in by_hand},
                **(_beside_bare(seconds, processor, name) if bare else {}),
            }
            for name in seconds
        },
        "first_step": first_step(race.first_losses, ["bare", "tutorial"] if gan == "dcgan" else ["bare"], tolerance),
        "largest_weight_difference": largest_weight_difference(bare, module) if isinstance(bare, BareLoop) else None,
    }


def _beside_bare(
    seconds: Mapping[str, list[float]], processor: Mapping[str, list[float]], name: str
) -> dict[str, dict[str, float]]:
    """Returns the ratio to the bare loop's time, in wall time and in processor time, and the difference in seconds."""
    pairs = zip(seconds[name], seconds["bare"], strict=True)
    return {
        "time_over_bare": ratios(seconds[name], seconds["bare"]),
        "processor_time_over_bare": ratios(processor[name], processor["bare"]),
        "seconds_over_bare": spread([one - bare for one, bare in pairs]),
    }


class Race:
    """Loader of the real training. Before it yields a batch, it runs and times a step of each manual loop on the batch.

    All time from the yield to the next request counts as `lit_gans`: fetching, step, callbacks, logging.

    Args:
        loops: the manual loops, by name.
        module: the module in the `Trainer`.
        batches: images on the device, in [-1, 1].
        num: number of batches to yield.

    Attributes:
        seconds, processor_seconds: wall time and processor time (of this thread) of each step of each loop. The last
            step of `lit_gans` is not timed, because no request follows.
        memory: peak bytes that a step of each loop allocates; CUDA only.
        first_losses: losses of the first step of each loop.
    """

    def __init__(self, loops: Mapping[str, Loop], module: AdversarialModule, batches: list[Tensor], num: int) -> None:
        self.loops, self.module, self.batches, self.num = loops, module, batches, num
        self.device = batches[0].device
        self.seconds: dict[str, list[float]] = {name: [] for name in (*self.loops, "lit_gans")}
        self.processor_seconds: dict[str, list[float]] = {name: [] for name in self.seconds}
        self.memory: dict[str, int] = {}
        self.first_losses: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[Tensor]:
        for iteration in range(self.num):
            images = self.batches[iteration % len(self.batches)]
            for name in turn_order(self.loops, iteration):
                with self._timed(name):
                    losses = self.loops[name].step(images)
                if iteration == 0:
                    self.first_losses[name] = {key: float(loss) for key, loss in losses.items()}
            with self._timed("lit_gans"):
                yield images
            if iteration == 0:
                self.first_losses["lit_gans"] = {name: float(loss) for name, loss in self.module.losses.items()}

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        on_cuda = self.device.type == "cuda"
        if on_cuda:
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        start, processor_start = now(self.device), time.thread_time()
        yield
        self.processor_seconds[name].append(time.thread_time() - processor_start)
        self.seconds[name].append(now(self.device) - start)
        if on_cuda:
            allocated = torch.cuda.max_memory_allocated(self.device) - before
            self.memory[name] = max(allocated, self.memory.get(name, 0))


def first_step(losses: Mapping[str, Mapping[str, float]], loops: Sequence[str], tolerance: float) -> dict[str, Any]:
    """Returns the losses of the first step, and whether they equal the losses of `lit_gans` up to a tolerance."""
    ours = losses["lit_gans"]
    found = [abs(losses[name][key] / ours[key] - 1) for name in loops if name in losses for key in ours]
    difference = max(found, default=0.0)
    return {"losses": losses, "largest_relative_difference": difference, "equal": difference <= tolerance}


def largest_weight_difference(bare: BareLoop, module: AdversarialModule) -> float:
    """Returns the largest difference between weights, buffers and averages of `bare` and `lit_gans`."""
    average = module.averaged_generator
    assert average is not None, "EMA has set it"
    networks = ((bare.module, bare.average), (module, average))
    one, other = (chain.from_iterable(each.state_dict().values() for each in pair) for pair in networks)
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


class _Operations(TorchDispatchMode):
    """Counts operations as torch's `FlopCounterMode`, whose hooks in modules do not allow gradient penalties."""

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # not at the top: it imports slowly

        self.registry, self.total = flop_registry, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = self.registry.get(func.overloadpacket)
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


def count_flops(work: Callable[[], Any]) -> int:
    """Runs `work` once. Returns the operations of its convolutions and matrix products, including penalties."""
    with _Operations() as counter:
        work()
    return counter.total


# ---- the report


def _rows(found: dict[str, Any], rate: float) -> list[dict[str, str]]:
    rows = []
    for name, loop in found["loops"].items():
        typical = loop["seconds"]["median"]
        row = {"loop": name, "images/s": f"{loop['images_per_second']:.4g}", "ms": shown(loop["seconds"], ".4g", 1000)}
        for key in ("speedup_over_tutorial", "speedup_over_mimicry"):
            if key in loop:
                row[f"times as fast as {key.removeprefix('speedup_over_')}"] = shown(loop[key], ".2f")
        if "time_over_bare" in loop:
            row["time : bare"] = shown(loop["time_over_bare"], ".3f")
            row["on a processor"] = shown(loop["processor_time_over_bare"], ".3f")
            row["ms - bare"] = shown(loop["seconds_over_bare"], "+.2f", 1000)
        if loop["flops_per_step"]:
            row["GFLOP"] = f"{loop['flops_per_step'] / 1e9:.3g}"
            row["% of product"] = f"{100 * loop['flops_per_step'] / typical / rate:.0f}"
            row["operations"] = f"{loop['operations_per_step']:,}"
        if loop["peak_step_memory"] is not None:
            row["MiB"] = f"{loop['peak_step_memory'] / MEBIBYTE:.0f}"
        rows.append(row)
    return rows


def _notes(result: dict[str, Any]) -> list[str]:
    lines = [f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"]
    lines.append(f"matrix product: {result['matrix_product'] / 1e9:.3g} GFLOP/s")
    for gan, found in result["gans"].items():
        if found["steps"] < result["steps"]:
            lines.append(f"{gan}: stopped after {found['steps']} of {result['steps']} timed steps")
        first = found["first_step"]
        verdict = "equal" if first["equal"] else "NOT equal, the ratios compare different work"
        lines.append(f"{gan}: losses of the first step: {verdict} ({first['largest_relative_difference']:.1e})")
        if found["largest_weight_difference"] is not None:
            lines.append(
                f"{gan}: weights of bare and lit_gans differ by {found['largest_weight_difference']:.1e} at last"
            )
    return lines
