"""One of the processes of `lit-gans bench strategies`: `python -m benchmarks.strategies_rank SETTINGS`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measure import quiet_trainer, spread
from benchmarks.shapes import SHAPES, Shape
from benchmarks.turns import ratios, take_turns
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.optimizer import EngineOptimizer
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.adversarial import AdversarialModule

_WARMUP = 2
_COUNTED = 2  # iterations whose bytes are counted: one before the autoencoder's discriminator starts, one after
_STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "lightning": lambda: DDPStrategy(find_unused_parameters=True),
    "lit_gans": NetworkDDP,
}


class _Batches(LightningDataModule):
    """The same batch in every step."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def train_dataloader(self) -> Any:
        return _Forever(self.batch)


class _Forever(torch.utils.data.IterableDataset):
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Any:
        while True:
            yield self.batch


class _Clock(Callback):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)


class _Counter(Callback):
    """Counts the bytes of all-reduces in each iteration, those of gradients and all others."""

    def __init__(self) -> None:
        self.gradients: list[int] = []
        self.others: list[int] = []
        self._in_hook = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy = trainer.strategy
        replicas = strategy.replicas.values() if isinstance(strategy, NetworkDDP) else [strategy.model]
        for replica in replicas:
            assert isinstance(replica, DistributedDataParallel)
            replica.register_comm_hook(None, self._hook)
        self._all_reduce = torch.distributed.all_reduce
        torch.distributed.all_reduce = self._counted  # in place of it: collectives have no hooks

    def on_train_batch_start(self, *_: Any) -> None:
        self.gradients.append(0)
        self.others.append(0)

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
            self.gradients[-1] += tensor.nbytes
        elif self.others:
            self.others[-1] += tensor.nbytes
        return self._all_reduce(tensor, *args, **kwargs)


def _bytes_held(strategy: Strategy) -> dict[str, int]:
    """Returns the bytes of parameters, gradients and optimizer states that this rank currently stores."""
    parameters = list(strategy.lightning_module.parameters())
    states = (state for optimizer in strategy.optimizers for state in optimizer.state.values())
    held = {
        "parameters": parameters,
        "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
        "optimizer": [value for state in states for value in state.values() if isinstance(value, torch.Tensor)],
    }
    for optimizer in strategy.optimizers:
        if isinstance(optimizer, EngineOptimizer):
            for kind, tensors in optimizer.tensors_held().items():
                held[kind] += tensors
    sizes = {kind: _storages(tensors) for kind, tensors in held.items()}
    for address in sizes["parameters"]:
        sizes["optimizer"].pop(address, None)
    return {kind: sum(each.values()) for kind, each in sizes.items()}


def _storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Returns the bytes of the storages of tensors on this rank, by address: shared storages count once."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in local)}


class _Memory(Callback):
    """Records the bytes that this rank holds."""

    def __init__(self) -> None:
        self.gradients = 0
        self.held: dict[str, int] = {}

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.gradients = max(self.gradients, _bytes_held(trainer.strategy)["gradients"])

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.held = _bytes_held(trainer.strategy) | {"gradients": self.gradients}


def _fit(module: LightningModule, batch: Any, strategy: Strategy, iterations: int, callback: Callback) -> None:
    trainer = quiet_trainer(
        "cpu",
        max_epochs=1,
        limit_train_batches=iterations,
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=strategy,
        callbacks=[callback],
    )
    trainer.fit(module, _Batches(batch))


def _gan(
    name: str, settings: dict[str, Any], network: str = "dcgan", **arguments: Any
) -> tuple[AdversarialModule, torch.Tensor]:
    """Returns a GAN and its batch."""
    width = settings["width"]
    sizes = {"image_size": settings["image_size"], "generator_width": width, "discriminator_width": width}
    networks = {} if name == "pix2pix" else {"network": network}
    module = registered()[name](**sizes, **networks, **arguments)
    shape = (settings["batch_size"] * module.batches_per_step, module.channels, module.image_size, module.image_size)
    return module, torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


def _shape(name: str, settings: dict[str, Any]) -> tuple[Shape, tuple[torch.Tensor, ...]]:
    """Returns one of the shapes and its batch."""
    torch.manual_seed(0)
    module = SHAPES[name](settings["width"], settings["image_size"])
    return module, module.examples(settings["batch_size"])


def _compare(make: Callable[[], tuple[LightningModule, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Counts the bytes of each iteration of a module under both strategies, then times them in turns."""
    counters = {kind: _Counter() for kind in _STRATEGIES}
    for kind, counter in counters.items():
        _fit(*make(), _STRATEGIES[kind](), _COUNTED, counter)

    def timed(kind: str) -> Callable[[], float]:
        def speed() -> float:
            clock = _Clock()
            _fit(*make(), _STRATEGIES[kind](), settings["steps"] + _WARMUP, clock)
            return 1 / spread(clock.seconds[_WARMUP:])["median"]

        return speed

    speeds = take_turns({kind: timed(kind) for kind in _STRATEGIES}, settings["rounds"])
    return {
        "iterations_per_second": {kind: spread(values) for kind, values in speeds.items()},
        "ratio": ratios(speeds["lit_gans"], speeds["lightning"]),
        "bytes_per_iteration": {kind: counter.gradients for kind, counter in counters.items()},
        "other_bytes_per_iteration": {kind: counter.others for kind, counter in counters.items()},
    }


def _compare_gan(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    found = _compare(partial(_gan, name, settings), settings)
    module, _ = _gan(name, settings)
    images = settings["batch_size"] * module.n_critic * int(os.environ["WORLD_SIZE"])
    speeds = found.pop("iterations_per_second")
    discriminators = sum(_bytes(module.get_submodule(n)) for n in module.discriminator_names)
    return {
        "images_per_second": {kind: {key: images * each for key, each in of.items()} for kind, of in speeds.items()},
        "ratio": found["ratio"],
        "bytes_per_step": {kind: counted[-1] for kind, counted in found["bytes_per_iteration"].items()},
        "other_bytes_per_step": {kind: counted[-1] for kind, counted in found["other_bytes_per_iteration"].items()},
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
        _fit(*_gan(name, settings, "resnet", accumulate_gradients=2), strategy, 2, memory)
        ranks: list[dict[str, int]] = [{}] * int(os.environ["WORLD_SIZE"])
        torch.distributed.all_gather_object(ranks, memory.held)
        most[label] = {kind: max(rank[kind] for rank in ranks) for kind in memory.held}
    return most


def main(settings: dict[str, Any]) -> None:
    """Measures on this rank; rank 0 writes the result to the file that the settings name."""
    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {"gans": {name: _compare_gan(name, settings) for name in settings["gans"]}}
    found["shapes"] = {name: _compare(partial(_shape, name, settings), settings) for name in settings["shapes"]}
    found["memory"] = _memory(settings["gans"][0], settings) if settings["gans"] else {}
    if os.environ["RANK"] == "0":
        Path(settings["file"]).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
