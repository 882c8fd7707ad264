"""Timed training steps of a GAN under any strategy: what most parts of the study measure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from omegaconf import OmegaConf
from torch.utils.data import IterableDataset

from benchmarks.measure import now, peak_process_memory, quiet_trainer
from benchmarks.study.binding import CoreBinding
from benchmarks.study.contract import Unavailable, require_device
from benchmarks.study.settings import Settings
from lit_gans.config.hydra_app import compose
from lit_gans.config.signatures import construct
from lit_gans.config.trainer_errors import trainer_refusals
from lit_gans.strategies.by_name import NAMES, named
from lit_gans.training.adversarial import AdversarialModule

CELEBA_IMAGES = 202_599
# the networks of the studies where an experiment has them; other GANs have their paper's
EXPERIMENTS = {"dcgan": "dcgan_scaling_study", "sngan": "sngan_scaling_study", "wgan_gp": "wgan_gp_scaling_study"}
ON_CPU = {"r3gan": "r3gan_digits"}  # its paper's networks take 21 s for a step of 8 images of 64x64 on two cores
_PROBE = 8  # images of the first steps on a CPU, the second of which predicts how long a large one would take


@cache
def _composed(*overrides: str) -> dict[str, Any]:
    model = OmegaConf.to_container(compose(*overrides, "metrics=none").model, resolve=True)
    assert isinstance(model, dict)
    return {str(key): value for key, value in model.items()}


def model_node(
    gan: str,
    image_size: int,
    width: int | None = None,
    experiment: str | None = None,
    device: str = "cuda",
    **arguments: Any,
) -> dict[str, Any]:
    """Returns the configuration of a GAN as plain values: the studies' networks where an experiment has them.

    Args:
        gan: name of the GAN.
        image_size: height and width of the images.
        width: width of all networks; None leaves that of the experiment or paper.
        experiment: name of an experiment of this GAN; None chooses the scaling study's, or else the paper's defaults.
        device: `cpu` or `cuda`; on a CPU, GANs whose paper's networks are too large for it have smaller ones.
        **arguments: further arguments of the GAN that replace its own.
    """
    if experiment is None:
        experiment = (EXPERIMENTS | ON_CPU if device == "cpu" else EXPERIMENTS).get(gan)
    overrides = [f"model={gan}" if experiment is None else f"experiment={experiment}"]
    overrides += [f"data.image_size={image_size}", "data.channels=3"]
    if gan == "pix2pix" and image_size < 64:
        overrides.append("model.patch_depth=1")  # three layers leave no patch of so small an image
    if width is not None:
        overrides += [f"model.generator_width={width}", f"model.discriminator_width={width}"]
    return _composed(*overrides) | arguments


def timing(settings: Settings) -> dict[str, Any]:
    """Returns the settings of `train` that limit the time of a cell."""
    names = ("warmup", "steps", "seconds", "step_limit")
    return {name: value for name, value in settings.to_dict().items() if name in names}


def train(
    settings: Mapping[str, Any],
    callbacks: Sequence[Callback] = (),
    strategy: Any = None,
    data: LightningDataModule | None = None,
) -> dict[str, Any]:
    """Trains and returns the timings of rank 0 as JSON.

    Args:
        settings: `model`, a node of `model_node`; `batch_size` per rank; `device`; `steps`, the most timed steps, after
            `warmup`; optionally `precision`, `strategy` (`{"name": ..., ...}`, see `by_name`; `bind="cores"` gives
            each process cores of its own), `seconds` after which
            the training ends, `step_limit`.
        callbacks: further callbacks of the trainer.
        strategy: a strategy that replaces the one that `settings` names.
        data: data to train on, without `step_limit`; None for random images.

    Returns:
        `images_per_second` of all critic steps and ranks; `generator_images_per_second`, the same divided by the critic
        steps; `seconds`, mean of a step; `fit_seconds`, all of `Trainer.fit`; `peak_memory` in bytes, on a CPU the
        growth of the process; `loss/...` after the last step; `steps`; `parameters` of all networks.

    Raises:
        Unavailable: a step would take longer than `step_limit`.
        RefusedInput: the settings do not go together.
    """
    require_device(settings["device"])
    node = dict(settings.get("strategy") or {})
    if node.pop("bind", "none") == "cores":
        CoreBinding(int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    module = construct(settings["model"], "model")
    ranks, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    clock = Clock(settings, module)
    before = peak_memory(settings["device"])
    with trainer_refusals():
        trainer = quiet_trainer(
            settings["device"],
            max_steps=clock.max_steps,
            max_epochs=-1,
            devices=local,
            num_nodes=ranks // local,
            strategy=strategy or strategy_of(node or None, ranks),
            precision=settings.get("precision", "32-true"),
            callbacks=[clock, *callbacks],
        )
    start = time.perf_counter()
    trainer.fit(module, data or clock.images())
    fit_seconds = time.perf_counter() - start
    if clock.refusal is not None:
        raise Unavailable(clock.refusal)
    losses = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("loss/")}
    memory = peak_memory(settings["device"]) - before
    return {**clock.result(ranks), "fit_seconds": fit_seconds, "peak_memory": memory, **losses}


def strategy_of(node: Mapping[str, Any] | None, ranks: int) -> Any:
    """Returns a strategy from its name and arguments; by default `network_ddp` for several processes."""
    if node is None:
        node = {"name": "auto" if ranks == 1 else "network_ddp"}
    if node["name"] not in NAMES:
        return node["name"]
    return named(**node)


def peak_memory(device: str) -> int:
    """Returns the peak memory of a device in bytes: of torch's allocations on CUDA, of this process on a CPU."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else (peak_process_memory() or 0)


class Clock(Callback):
    """Times the steps after the warm-up, without waiting for the device in each, and ends the training in time.

    Args:
        settings: see `train`.
        module: module that will be trained.
    """

    def __init__(self, settings: Mapping[str, Any], module: AdversarialModule) -> None:
        self.settings, self.module = settings, module
        self.refusal: str | None = None
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        on_cpu = settings["device"] == "cpu" and not module.compile_networks
        self._limited = on_cpu and settings.get("step_limit") is not None
        self._probe = min(_PROBE, settings["batch_size"])
        # the first step is cold; one of a large batch waits for a prediction
        self._probes = (1 if self._probe == settings["batch_size"] else 2) if self._limited else 0
        self._marks: list[float] = []
        self.max_steps = self._last = settings["warmup"] + self._probes + settings["steps"]
        self._since = 0.0

    def images(self) -> LightningDataModule:
        """Returns the data: the same random images in every step, after fewer of them in the first ones."""
        module, size = self.module, self.settings["batch_size"]
        channels = module.dummy_batch(1).get("input")
        sizes = [self._probe * module.batches_per_step] * self._probes
        return _Images(module, sizes, size * module.batches_per_step, channels)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since = now(pl_module.device)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step, warmup = trainer.global_step, self.settings["warmup"] + self._probes
        if step <= warmup:
            elapsed, self._since = now(pl_module.device) - self._since, now(pl_module.device)
            if step > 1 and self._limited:
                self._limit(trainer, elapsed, is_probe=step <= self._probes)
            if step == warmup:
                self._plan(trainer, elapsed)
                self._marks = [now(pl_module.device)]
            return
        if step >= self._last:
            self._marks.append(now(pl_module.device))
            trainer.should_stop = True

    def _limit(self, trainer: Trainer, elapsed: float, is_probe: bool) -> None:
        """Ends the training if a step of the full batch would take, or has taken, too long; the same on every rank."""
        factor = self.settings["batch_size"] / self._probe if is_probe else 1
        seconds, limit = float(trainer.strategy.broadcast(elapsed * factor)), self.settings["step_limit"]
        if seconds > limit:
            takes = "would take about" if is_probe else "takes"
            self.refusal = f"a step {takes} {seconds:.0f} s here, longer than step_limit={limit:g}."
            trainer.should_stop = True

    def _plan(self, trainer: Trainer, step_seconds: float) -> None:
        """Chooses the number of timed steps, the same on every rank."""
        steps = self.settings["steps"]
        if self.settings.get("seconds") is not None:
            steps = min(steps, max(2, round(self.settings["seconds"] / max(step_seconds, 1e-9))))
        self._last = trainer.global_step + int(trainer.strategy.broadcast(steps))

    def result(self, ranks: int) -> dict[str, Any]:
        """Returns the timings, see `train`."""
        start, end = self._marks
        steps = self._last - self.settings["warmup"] - self._probes
        seconds = (end - start) / steps
        images = self.settings["batch_size"] * self.module.batches_per_step * ranks
        return {
            "images_per_second": images / seconds,
            "generator_images_per_second": images / self.module.n_critic / seconds,
            "seconds": seconds,
            "steps": steps,
            "parameters": self.parameters,
        }


class _Images(LightningDataModule):
    def __init__(self, module: AdversarialModule, first: list[int], num: int, inputs: torch.Tensor | None) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
        shape = (num, module.channels, module.image_size, module.image_size)
        self.batch = {"image": torch.rand(shape, generator=generator) * 2 - 1}
        if inputs is not None:
            self.batch["input"] = torch.rand((num, *inputs.shape[1:]), generator=generator) * 2 - 1
            self.input_channels = inputs.shape[1]
        self.first = first

    def train_dataloader(self) -> Any:
        return _Forever(self.batch, self.first)

    @property
    def held_out(self) -> dict[str, torch.Tensor]:
        """The first pair as uint8."""
        return {name: images[:1].add(1).mul(127.5).to(torch.uint8) for name, images in self.batch.items()}


class _Forever(IterableDataset):
    def __init__(self, batch: dict[str, torch.Tensor], first: list[int]) -> None:
        self.batch, self.first = batch, first

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for num in self.first:
            yield {name: images[:num] for name, images in self.batch.items()}
        while True:
            yield self.batch
