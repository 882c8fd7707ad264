"""Measures the cells of the study. Every rank of a cell calls these functions."""

from __future__ import annotations

import base64
import io
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from omegaconf import OmegaConf
from torch import distributed
from torch.utils.data import IterableDataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from benchmarks.common import now, peak_process_memory
from benchmarks.jpegs import write_jpegs
from benchmarks.loops import TutorialLoop
from benchmarks.study.cells import Cell
from benchmarks.study.tables import SCORES
from benchmarks.study.timeline import DeviceProfile, Steps, TimedData, TimedDDP, Timeline
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.throughput import Throughput, paused
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from lit_gans.data.sources.folder import Folder
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.training.callback import GenerativeCallback, callbacks_of
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import ConstantSchedule

_PROBE = 8  # images in the first steps on a CPU; the second step predicts the duration of a large step
_SIZES = (4096, 2**22)  # sizes of messages, in bytes; latency dominates the first, bandwidth dominates the second
_ABSENT = ("samples", "watch", "early_stopping", "checkpoint", "progress_bar")  # callbacks of a curve


class Unavailable(Exception):
    """A cell that this machine cannot measure; the message is the reason, which the report lists."""


def measure(cell: Cell) -> dict[str, Any]:
    """Measures a cell and returns its numbers as JSON; every rank calls it, with the environment of torchrun.

    Raises:
        Unavailable: if the cell cannot be measured on this machine. A `RefusedInput` has the same meaning.
    """
    if cell.labels["device"] == "cuda" and not torch.cuda.is_available():
        raise Unavailable("torch finds no CUDA device.")
    return KINDS[cell.kind](cell)


# ---- timed steps


def built(cell: Cell, *overrides: str) -> tuple[Any, Trainer]:
    """Returns the module and the trainer of a cell, without data, callbacks and metrics."""
    ranks, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    settings = [f"trainer.accelerator={cell.labels['device']}", f"trainer.devices={local}"]
    settings += [f"trainer.num_nodes={ranks // local}", "callbacks=none", "metrics=none", "logger=none"]
    settings += ["trainer.enable_progress_bar=false", "trainer.max_steps=-1"]
    config = compose(*cell.overrides, *settings, "trainer.use_distributed_sampler=false", *overrides)
    nodes = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "trainer")}
    nothing = {"data": {"_target_": "lightning.pytorch.LightningDataModule"}, "seed": 0}
    module, _, trainer = build({**nodes, **nothing})
    _keep_learning_rates(module)
    return module, trainer


def _keep_learning_rates(module: Any) -> None:
    """Removes decays until the last iteration, because no training here knows this iteration in advance."""
    for name in ("generator_optimizer", "discriminator_optimizer"):
        optimizer = getattr(module, name)
        if optimizer.schedule.needs_total:
            setattr(module, name, OptimizerConfig(**{**optimizer.init_args, "schedule": ConstantSchedule()}))


def timed(cell: Cell, strategy: Any = None, data: Any = None, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Trains and returns the timings of rank 0.

    Args:
        cell: cell whose settings are `steps`, the maximum number of timed steps after `warmup`; optionally `seconds`
            after which the training ends, and `step_limit`.
        strategy: a strategy that replaces the one of the overrides.
        data: data to train on; None for random images.
        callbacks: further callbacks of the trainer.

    Returns:
        `images_per_second` of all critic steps and ranks; `generator_images_per_second`, the same divided by the critic
        steps; `seconds`, mean of a step; `fit_seconds`, all of `Trainer.fit`; `peak_memory` in bytes, on a CPU the
        growth of the process; `loss/...` after the last step; `steps`; `parameters` of all networks.

    Raises:
        Unavailable: a step would take longer than `step_limit`.
    """
    before = _peak_memory(cell)
    module, trainer = built(cell)
    if strategy is not None:
        trainer = Trainer(
            strategy=strategy,
            accelerator=cell.labels["device"],
            devices=trainer.num_devices,
            num_nodes=trainer.num_nodes,
            max_epochs=-1,
            **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
            use_distributed_sampler=False,
        )
    clock = Clock(cell, probes=data is None)
    trainer.callbacks += [clock, *callbacks]  # type: ignore[attr-defined]
    start = time.perf_counter()
    trainer.fit(module, data or Images(module, cell.labels["batch_size"], clock.probes))
    fit_seconds = time.perf_counter() - start
    if clock.refusal is not None:
        raise Unavailable(clock.refusal)
    images = cell.labels["batch_size"] * module.batches_per_step * cell.ranks
    return {
        "images_per_second": images / clock.seconds,
        "generator_images_per_second": images / module.n_critic / clock.seconds,
        "seconds": clock.seconds,
        "steps": clock.steps,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "fit_seconds": fit_seconds,
        "peak_memory": _peak_memory(cell) - before,
        **{name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("loss/")},
    }


def _peak_memory(cell: Cell) -> int:
    return torch.cuda.max_memory_allocated() if cell.labels["device"] == "cuda" else (peak_process_memory() or 0)


class Clock(Callback):
    """Times the steps after the warm-up without synchronizing in each step, and ends the training in time.

    Args:
        cell: see `timed`.
        probes: whether the first two steps can have few images, to predict the duration of a step with a large batch.
    """

    def __init__(self, cell: Cell, probes: bool) -> None:
        self.batch_size, settings = cell.labels["batch_size"], cell.settings
        self.limit = settings.get("step_limit") if cell.labels["device"] == "cpu" else None
        self.probes = 2 if probes and self.limit is not None and self.batch_size > _PROBE else 0
        self.warmup, self.steps, self.most_seconds = settings["warmup"], settings["steps"], settings.get("seconds")
        if self.most_seconds is not None and not self.probes:
            self.warmup = max(2, self.warmup)  # the duration of the second step decides how many are timed
        self.refusal: str | None = None
        self.seconds, self._since, self._step = 0.0, 0.0, 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._step += 1
        first = self.probes + self.warmup
        if first < self._step < first + self.steps:
            return
        elapsed, self._since = now(pl_module.device) - self._since, now(pl_module.device)
        if self._step == first + self.steps:
            self.seconds = elapsed / self.steps
            trainer.should_stop = True
        elif self._step > 1:
            self._look(trainer, elapsed, first)

    def _look(self, trainer: Trainer, elapsed: float, first: int) -> None:
        """Ends the training if a full-batch step takes too long. Plans the same number of steps on every rank."""
        probing = self._step <= self.probes
        step = elapsed * self.batch_size / _PROBE if probing else elapsed
        step = float(trainer.strategy.broadcast(step))
        if self.limit is not None and step > self.limit:
            takes = "would take about" if probing else "takes"
            self.refusal = f"a step {takes} {step:.0f} s here, longer than step_limit={self.limit:g}."
            trainer.should_stop = True
        elif self._step == first and self.most_seconds is not None:
            self.steps = min(self.steps, max(2, round(self.most_seconds / max(step, 1e-9))))


class Images(LightningDataModule):
    """Returns the same random images in every step, and only a few of these images in the first steps."""

    def __init__(self, module: Any, batch_size: int, probes: int) -> None:
        super().__init__()
        num, few = batch_size * module.batches_per_step, _PROBE * module.batches_per_step
        generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
        shapes = {"image": (num, module.channels, module.image_size, module.image_size)}
        inputs = module.dummy_batch(1).get("input")
        if inputs is not None:
            shapes["input"] = (num, *inputs.shape[1:])
            self.input_channels = inputs.shape[1]
        self.batch = {name: torch.rand(shape, generator=generator) * 2 - 1 for name, shape in shapes.items()}
        self.first = [{name: images[:few] for name, images in self.batch.items()}] * probes

    def train_dataloader(self) -> Any:
        return _Forever(self.batch, self.first)

    @property
    def held_out(self) -> dict[str, torch.Tensor]:
        """The first pair as uint8."""
        return {name: images[:1].add(1).mul(127.5).to(torch.uint8) for name, images in self.batch.items()}


class _Forever(IterableDataset):
    def __init__(self, batch: dict[str, torch.Tensor], first: Sequence[dict[str, torch.Tensor]]) -> None:
        self.batch, self.first = batch, first

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        yield from self.first
        while True:
            yield self.batch


# ---- trainings that are measured on their way


def curve(cell: Cell) -> dict[str, Any]:
    """Trains for a number of real images and for a number of seconds, and measures the generator during training.

    Returns:
        `points`: iteration, real images, seconds of training and scores of each measurement; `frames` of a video;
        `memory`: peak of the training in bytes; `utilization`: means of the training.
    """
    samples = cell.labels["samples"]
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"data.batch_size={cell.labels['batch_size']}", f"trainer.accelerator={cell.labels['device']}"]
        settings += [f"metrics.num_samples={samples}", f"metrics.batch_size={min(250, samples)}", "logger=none"]
        settings += [f"trainer.default_root_dir={folder}", "trainer.max_steps=-1", "trainer.log_every_n_steps=1"]
        settings += ["trainer.devices=1", *(f"callbacks.{name}=null" for name in _ABSENT)]
        settings += ["trainer.enable_progress_bar=false"]
        module, data, trainer = build(compose(*cell.overrides, *settings))
        _keep_learning_rates(module)
        trace = _Trace(cell, *callbacks_of(trainer, Throughput), *callbacks_of(trainer, Measurement))
        others = [each for each in trainer.callbacks if each is not trace.metrics]  # type: ignore[attr-defined]
        trainer.callbacks = [*others, trace]  # type: ignore[attr-defined]
        trainer.fit(module, datamodule=data)
    return {name: getattr(trace, name) for name in ("points", "frames", "memory", "utilization")}


class _Trace(GenerativeCallback):
    """Measures when images or seconds are due, and ends the training after both.

    Args:
        cell: see `curve`.
        throughput: callback that counts the seconds of training, and logs in every iteration.
        metrics: callback that measures, without its own intervals.
    """

    def __init__(self, cell: Cell, throughput: Throughput, metrics: Measurement) -> None:
        self.points: list[dict[str, float]] = []
        self.frames: list[str] = []
        self.memory = 0
        self.utilization: dict[str, float] = {}
        self.metrics, self._throughput, self._cell, self._seconds = metrics, throughput, cell, 0.0
        self._scores = SCORES[cell.labels["data"]]
        limits = {"images": cell.labels.get("images"), "s": cell.labels.get("limit_seconds")}
        num = cell.labels["evaluations"]
        self._due = {key: [(i + 1) / num * limit for i in range(num)] if limit else [] for key, limit in limits.items()}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.metrics.setup(trainer, pl_module, stage)  # type: ignore[arg-type]

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        module: Any = pl_module
        step = trainer.global_step
        images = step * self._cell.labels["batch_size"] * module.n_critic
        reached = {"images": images, "s": self._throughput.seconds}
        self._average(trainer, reached["s"])
        if all(not due or reached[key] < due[0] for key, due in self._due.items()):
            return
        self._due = {key: [value for value in due if value > reached[key]] for key, due in self._due.items()}
        self.memory = self.memory or _peak_memory(self._cell)  # before the metrics, which need memory, too
        self.metrics.measure_now(trainer, module)
        if self._cell.settings.get("film"):
            with paused(trainer):
                file = io.BytesIO()
                to_pil_image(make_grid(module.sample(16, seed=0).cpu().clamp(0, 1), 4)).save(file, "PNG")
                self.frames.append(base64.b64encode(file.getvalue()).decode())
        self.points.append({"iteration": step, **reached, **{key: self.metrics.values[key] for key in self._scores}})
        trainer.should_stop = not any(self._due.values())

    def _average(self, trainer: Trainer, seconds: float) -> None:
        share = (seconds - self._seconds) / seconds  # fraction of the training time since the last call
        for name, value in trainer.callback_metrics.items():
            if name.startswith("utilization/"):
                mean = self.utilization.get(name, 0.0)
                self.utilization[name] = mean + share * (float(value) - mean)
        self._seconds = seconds


def block(cell: Cell) -> dict[str, Any]:
    """Counts multiply-adds of the forward pass of one image, times steps, and measures FID after some seconds."""
    module, _ = built(cell)
    module.eval()
    batch, image = module.dummy_batch(1), torch.empty(1, module.channels, module.image_size, module.image_size)
    forwards = {
        "generator": lambda: module.generate(module.generator, batch),
        "discriminator": lambda: module.discriminator(image, *module.condition(batch)),
    }
    found: dict[str, Any] = {}
    for name, forward in forwards.items():
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            forward()
        found[f"{name}_multiply_adds"] = counter.get_total_flops() // 2
    digits = ["data=digits", "metrics=digits", "data.image_size=32", "data.channels=1"]
    labels = {**cell.labels, "data": "digits", "limit_seconds": cell.labels["fid_seconds"], "evaluations": 1}
    points = curve(replace(cell, labels=labels, overrides=[*cell.overrides, *digits]))["points"]
    return found | timed(cell) | {"fid": points[-1]["metric/fid_digits"]}


# ---- what is no training with overrides


def plain_loop(cell: Cell) -> dict[str, Any]:
    """Times the loop of DeepSpeed's tutorial.

    Raises:
        Unavailable: a step takes longer than `step_limit`.
    """
    device, settings = torch.device(cell.labels["device"]), cell.settings
    module, _ = built(cell, "model.channels_last=false")
    loop = TutorialLoop(module.to(device))
    shape = (cell.labels["batch_size"], module.channels, module.image_size, module.image_size)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).mul(2).sub(1)

    def seconds(steps: int) -> float:
        start = now(device)
        for _ in range(steps):
            losses.update(loop.step(images.to(device)))
        return (now(device) - start) / steps

    losses: dict[str, Any] = {}
    seconds(settings["warmup"])
    step = seconds(1)
    if step > settings["step_limit"]:
        raise Unavailable(f"a step takes {step:.0f} s here, longer than step_limit={settings['step_limit']:g}.")
    steps = min(settings["steps"], max(2, round(settings["seconds"] / step)))
    step = seconds(steps)
    found = {f"loss/{name}": float(loss) for name, loss in losses.items()}
    return {"seconds": step, "steps": steps, "generator_images_per_second": len(images) / step, **found}


def overlap(cell: Cell) -> dict[str, Any]:
    """Trains on files, and records when this process computes, communicates and waits for data."""
    module, _ = built(cell)
    timeline, warmup = Timeline(), cell.settings["warmup"]
    profile = DeviceProfile(warmup) if cell.labels["device"] == "cuda" else None
    with tempfile.TemporaryDirectory() as folder:
        num = 2 * cell.labels["batch_size"] * module.batches_per_step * cell.ranks  # two steps
        jpegs = write_jpegs(Path(folder, "jpegs"), num, 0)
        sizes = {"image_size": module.image_size, "batch_size": cell.labels["batch_size"]}
        data = TimedData(Folder(str(jpegs), cache=f"{folder}/cache", **sizes), timeline)
        callbacks = [Steps(timeline), *([profile] if profile else [])]
        found = timed(cell, TimedDDP(timeline), data, callbacks)
    shares = profile.shares() if profile else timeline.shares(warmup)
    return {**found, **shares, "sum": sum(shares.values()), "step": found["seconds"]}


class SilentDDP(NetworkDDP):
    """Data parallel training whose replicas exchange no gradients, so that a step contains only computation."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for replica in self.replicas.values():
            replica.register_comm_hook(None, _exchange_nothing)


def _exchange_nothing(state, bucket):  # not annotated, because torch rejects string annotations
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def link(cell: Cell) -> dict[str, Any]:
    """Measures the inputs of the cost model: communication between processes, computation alone, and the real step."""
    module, _ = built(cell)
    on_cuda = cell.labels["device"] == "cuda"
    distributed.init_process_group("nccl" if on_cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_cuda else torch.device("cpu")
    sizes: Mapping[str, int] = {
        name: sum(p.numel() * p.element_size() for p in module.get_submodule(name).parameters() if p.requires_grad)
        for name in module.network_names
    }
    generator = sizes["generator"]
    found = {
        "all_reduces": {str(size): _all_reduce_seconds(size, device) for size in _SIZES},
        "gradients": [generator, sum(sizes.values()) - generator],
        "n_critic": module.n_critic,
        "reuses_fake": module.reuses_fake and module.generator_batch_multiple == 1,
        "computation": timed(cell, SilentDDP())["seconds"],
    }
    real = timed(cell, NetworkDDP())
    return found | {name: real[name] for name in ("seconds", "images_per_second", "generator_images_per_second")}


def _all_reduce_seconds(num_bytes: int, device: torch.device) -> float:
    tensor, times = torch.zeros(num_bytes // 4, device=device), []
    for _ in range(6):
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(tensor)
        float(tensor[0])  # synchronizes with the device
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


KINDS = {"timed": timed, "curve": curve, "block": block, "plain_loop": plain_loop, "overlap": overlap, "link": link}
