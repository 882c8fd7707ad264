"""One of the processes of `lit-gans bench strategies`: `python -m lit_gans.benchmark.strategies_rank SETTINGS`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from lit_gans.benchmark.measure import quiet_trainer, spread
from lit_gans.benchmark.turns import ratios, take_turns
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.strategies.contracts import bytes_held
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.adversarial import AdversarialModule

_WARMUP = 2
_STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "lightning": lambda: DDPStrategy(find_unused_parameters=True),
    "lit_gans": NetworkDDP,
}


class _Images(LightningDataModule):
    """The same random images in every step."""

    def __init__(self, num: int, module: AdversarialModule) -> None:
        super().__init__()
        shape = (num, module.channels, module.image_size, module.image_size)
        self.images = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def train_dataloader(self) -> Any:
        return _Forever(self.images)


class _Forever(torch.utils.data.IterableDataset):
    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __iter__(self) -> Any:
        while True:
            yield self.images


class _Clock(Callback):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)


class _Counter(Callback):
    """Counts the bytes of all-reduces, those of gradients and all others."""

    def __init__(self) -> None:
        self.gradients, self.others = 0, 0
        self._in_hook = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy = trainer.strategy
        replicas = strategy.replicas.values() if isinstance(strategy, NetworkDDP) else [strategy.model]
        for replica in replicas:
            assert isinstance(replica, DistributedDataParallel)
            replica.register_comm_hook(None, self._hook)
        self._all_reduce = torch.distributed.all_reduce
        torch.distributed.all_reduce = self._counted  # in place of it: collectives have no hooks

    def on_train_end(self, *_: Any) -> None:
        torch.distributed.all_reduce = self._all_reduce

    def _hook(self, state, bucket):  # torch refuses annotations that are strings, as here all are
        self._in_hook = True  # torch's own hook would reduce where Python does not see it
        try:
            return allreduce_hook(None, bucket)
        finally:
            self._in_hook = False

    def _counted(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._in_hook:
            self.gradients += tensor.nbytes
        else:
            self.others += tensor.nbytes
        return self._all_reduce(tensor, *args, **kwargs)


class _Memory(Callback):
    """Records the bytes that this rank holds."""

    def __init__(self) -> None:
        self.gradients = 0
        self.held: dict[str, int] = {}

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.gradients = max(self.gradients, bytes_held(trainer.strategy)["gradients"])

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.held = bytes_held(trainer.strategy) | {"gradients": self.gradients}


def _fit(
    name: str,
    strategy: Strategy,
    settings: dict[str, Any],
    steps: int,
    callback: Callback,
    network: str = "dcgan",
    **arguments: Any,
) -> AdversarialModule:
    width = settings["width"]
    sizes = {"image_size": settings["image_size"], "generator_width": width, "discriminator_width": width}
    networks = {} if name == "pix2pix" else {"network": network}
    module = registered()[name](**sizes, **networks, **arguments)
    ranks = int(os.environ["WORLD_SIZE"])
    trainer = quiet_trainer("cpu", max_steps=steps, devices=ranks, strategy=strategy, callbacks=[callback])
    trainer.fit(module, _Images(settings["batch_size"] * module.batches_per_step, module))
    return module


def _compare(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Counts the bytes of one GAN under both strategies, then times them in turns."""
    counters = {kind: _Counter() for kind in _STRATEGIES}
    for kind, counter in counters.items():
        module = _fit(name, _STRATEGIES[kind](), settings, 2, counter)
    images = settings["batch_size"] * module.n_critic * int(os.environ["WORLD_SIZE"])
    discriminators = sum(_bytes(module.get_submodule(n)) for n in module.discriminator_names)

    def timed(kind: str) -> Callable[[], float]:
        def speed() -> float:
            clock = _Clock()
            _fit(name, _STRATEGIES[kind](), settings, settings["steps"] + _WARMUP, clock)
            return images / spread(clock.seconds[_WARMUP:])["median"]

        return speed

    speeds = take_turns({kind: timed(kind) for kind in _STRATEGIES}, settings["rounds"])
    return {
        "images_per_second": {kind: spread(values) for kind, values in speeds.items()},
        "ratio": ratios(speeds["lit_gans"], speeds["lightning"]),
        "bytes_per_step": {kind: counter.gradients // 2 for kind, counter in counters.items()},
        "other_bytes_per_step": {kind: counter.others // 2 for kind, counter in counters.items()},
        "gradient_bytes_per_step": module.n_critic * discriminators + _bytes(module.generator),
    }


def _bytes(network: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())


def _sharded() -> Iterable[tuple[str, Strategy]]:
    yield "ddp", NetworkDDP()
    if importlib.util.find_spec("deepspeed"):
        every = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}  # else small layers stay unsharded
        for stage in (1, 2, 3):
            yield f"deepspeed stage {stage}", NetworkDeepSpeed(stage=stage, config=every)
    yield "fsdp", NetworkFSDP()


def _memory(name: str, settings: dict[str, Any]) -> dict[str, dict[str, int]]:
    most = {}
    for label, strategy in _sharded():
        memory = _Memory()
        # parameters of like sizes: ZeRO's ranks hold the full gradient of one that is split
        _fit(name, strategy, settings, 2, memory, "resnet", accumulate_gradients=2)
        ranks: list[dict[str, int]] = [{}] * int(os.environ["WORLD_SIZE"])
        torch.distributed.all_gather_object(ranks, memory.held)
        most[label] = {kind: max(rank[kind] for rank in ranks) for kind in memory.held}
    return most


def main(settings: dict[str, Any]) -> None:
    """Measures on this rank; rank 0 writes the result to the file that the settings name."""
    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {"gans": {name: _compare(name, settings) for name in settings["gans"]}}
    found["memory"] = _memory(settings["gans"][0], settings)
    if os.environ["RANK"] == "0":
        Path(settings["file"]).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
