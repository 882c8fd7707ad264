"""`python -m benchmarks strategies`: `NetworkDDP` compared with Lightning's DDP, and memory of all strategies."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.tensor import DTensor
from torch.utils.data import IterableDataset

from benchmarks.common import environment, quiet_trainer, ratios, report, shown, spread, take_turns
from lit_gans.common._compat.deepspeed import stored_gradients, zero3_shard
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.optimizer import EngineOptimizer, StoredGradient
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.module import AdversarialModule

_RANKS = 2
_WARMUP = 2
_PRESETS = {
    "full": {"rounds": 11, "steps": 8, "image_size": 32, "width": 32, "batch_size": 16},
    "smoke": {"rounds": 1, "steps": 2, "image_size": 16, "width": 4, "batch_size": 2},
}
_STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "lightning": lambda: DDPStrategy(find_unused_parameters=True),
    "lit_gans": NetworkDDP,
}


def strategies(
    preset: Literal["full", "smoke"] = "full",
    gans: list[str] = ["dcgan", "wgan_gp", "d2gan"],  # noqa: B006 - read only
    rounds: int | None = None,
    steps: int | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """Times `NetworkDDP` and `ddp_find_unused_parameters_true` in turns, on two CPU processes over gloo.

    Both train the same module on the same images; a round is some steps of each. Bytes are counted at each all-reduce:
    those of gradients, and separately ours of running statistics (Lightning broadcasts its buffers below Python,
    uncounted, as is the bitmap of unused parameters). Then the first GAN is trained under each strategy, with residual
    networks, Adam and two microbatches, and the bytes that a rank holds are measured: parameters and optimizer states
    after an iteration, gradients at the end of the backward pass after which they are largest.

    Args:
        preset: `smoke` finishes in seconds; its times are meaningless.
        gans: names of the GANs to train.
        rounds: number of rounds; null uses the preset's number.
        steps: number of timed steps of each strategy per round; null uses the preset's number.
        output: optional JSON file to write.

    Returns:
        `gans`, for each: images per second and bytes per step of both, the ratio of their speeds with quartiles over
        the rounds, and the bytes of the gradients of the networks that a step trains. `memory`, for each strategy: the
        bytes that a rank holds, the larger of the two.
    """
    settings: dict[str, Any] = dict(_PRESETS[preset])
    settings |= {name: value for name, value in {"rounds": rounds, "steps": steps}.items() if value is not None}
    if not gans or not {*gans} <= {*registered()}:
        raise RefusedInput(f"gans={gans}: choose from {', '.join(sorted(registered()))}.")
    refuse_below(1, rounds=settings["rounds"], steps=settings["steps"])
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        file, port = Path(folder) / "result.json", probe.getsockname()[1]
        probe.close()
        torch.multiprocessing.spawn(_rank, (gans, settings, port, str(file)), _RANKS)
        found = json.loads(file.read_text())
    result = {"benchmark": "strategies", "preset": preset, "ranks": _RANKS, **settings}
    result |= {**environment(torch.device("cpu")), **found}
    return report(result, _tables(result), [], output)


def _rank(rank: int, gans: list[str], settings: dict[str, Any], port: int, file: str) -> None:
    """Measures on one of the processes; rank 0 writes the result."""
    one, num = str(rank), str(_RANKS)
    os.environ |= {"RANK": one, "LOCAL_RANK": one, "GROUP_RANK": "0", "WORLD_SIZE": num, "LOCAL_WORLD_SIZE": num}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "bench"}
    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {"gans": {name: _compare(name, settings) for name in gans}, "memory": _memory(gans[0], settings)}
    if rank == 0:
        Path(file).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


class _Batches(LightningDataModule):
    """The same batch in every step."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def train_dataloader(self) -> Any:
        return _Forever(self.batch)


class _Forever(IterableDataset):
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.batch


class _Clock(Callback):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)


class Counter(Callback):
    """Counts the bytes of all-reduces in each iteration, those of gradients and all others."""

    def __init__(self) -> None:
        self.gradients: list[int] = []
        self.others: list[int] = []
        self._in_hook = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy = trainer.strategy
        replicas = strategy.replicas.values() if isinstance(strategy, NetworkDDP) else [strategy.model]
        for replica in replicas:
            replica.register_comm_hook(None, self._hook)  # type: ignore[union-attr, operator]
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
        counted = self.gradients if self._in_hook else self.others
        if counted:
            counted[-1] += tensor.nbytes
        return self._all_reduce(tensor, *args, **kwargs)


class Memory(Callback):
    """Records the bytes that this rank holds."""

    def __init__(self) -> None:
        self.gradients = 0
        self.held: dict[str, int] = {}

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.gradients = max(self.gradients, _bytes_held(trainer.strategy)["gradients"])

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.held = _bytes_held(trainer.strategy) | {"gradients": self.gradients}


def _bytes_held(strategy: Strategy) -> dict[str, int]:
    """Returns the bytes of parameters, gradients and optimizer states that this rank currently stores."""
    parameters = list(strategy.lightning_module.parameters())
    states = (state for optimizer in strategy.optimizers for state in optimizer.state.values())
    gradients = (parameter.grad for parameter in parameters)
    held = {
        "parameters": parameters,
        # those that an engine of DeepSpeed stores are added below
        "gradients": [each for each in gradients if each is not None and not isinstance(each, StoredGradient)],
        "optimizer": [value for state in states for value in state.values() if isinstance(value, torch.Tensor)],
    }
    for optimizer in strategy.optimizers:
        if isinstance(optimizer, EngineOptimizer):
            held["optimizer"] += [flat for _, flat in optimizer.flat_groups()]  # the weights that are stepped
            held["gradients"] += stored_gradients(optimizer.engine, optimizer.stage) if optimizer.stage else []
            held["parameters"] += [zero3_shard(own) for own in optimizer.parameters] if optimizer.stage == 3 else []
    sizes = {kind: _storages(tensors) for kind, tensors in held.items()}
    for address in sizes["parameters"]:
        sizes["optimizer"].pop(address, None)
    return {kind: sum(each.values()) for kind, each in sizes.items()}


def _storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Returns the bytes of the storages of tensors on this rank, by address: shared storages count once."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in local)}


def _fit(
    name: str, settings: dict[str, Any], strategy: Strategy, iterations: int, callback: Callback, **arguments: Any
) -> AdversarialModule:
    """Trains a GAN and returns it."""
    widths = {"generator_width": settings["width"], "discriminator_width": settings["width"]}
    module: AdversarialModule = registered()[name](image_size=settings["image_size"], **widths, **arguments)
    shape = (settings["batch_size"] * module.batches_per_step, module.channels, module.image_size, module.image_size)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    trainer = quiet_trainer(
        "cpu",
        max_epochs=1,
        limit_train_batches=iterations,
        devices=_RANKS,
        strategy=strategy,
        callbacks=[callback],
    )
    trainer.fit(module, _Batches(images))
    return module


def _compare(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Counts the bytes of an iteration of a GAN under both strategies, then times them in turns."""
    networks = {} if name in ("pix2pix", "cyclegan") else {"network": "dcgan"}
    counters = {kind: Counter() for kind in _STRATEGIES}
    for kind, counter in counters.items():
        module = _fit(name, settings, _STRATEGIES[kind](), 2, counter, **networks)
    images = settings["batch_size"] * module.n_critic * _RANKS

    def speed(kind: str) -> float:
        clock = _Clock()
        _fit(name, settings, _STRATEGIES[kind](), settings["steps"] + _WARMUP, clock, **networks)
        return images / spread(clock.seconds[_WARMUP:])["median"]

    speeds = take_turns({kind: partial(speed, kind) for kind in _STRATEGIES}, settings["rounds"])
    discriminators = sum(_bytes(module.get_submodule(each)) for each in module.discriminator_names)
    return {
        "images_per_second": {kind: spread(values) for kind, values in speeds.items()},
        "ratio": ratios(speeds["lit_gans"], speeds["lightning"]),
        "bytes_per_step": {kind: counter.gradients[-1] for kind, counter in counters.items()},
        "other_bytes_per_step": {kind: counter.others[-1] for kind, counter in counters.items()},
        "gradient_bytes_per_step": module.n_critic * discriminators + _bytes(module.generator),
    }


def _bytes(network: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())


def _sharded() -> Iterator[tuple[str, Strategy]]:
    yield "ddp", NetworkDDP()
    if importlib.util.find_spec("deepspeed"):
        every = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}  # else small layers stay unsharded
        for stage in (1, 2, 3):
            yield f"deepspeed stage {stage}", NetworkDeepSpeed(stage=stage, config=every)
    yield "fsdp", NetworkFSDP()


def _memory(name: str, settings: dict[str, Any]) -> dict[str, dict[str, int]]:
    most = {}
    for label, strategy in _sharded():
        memory = Memory()
        # parameters of like sizes: ZeRO's ranks hold the full gradient of one that is split
        _fit(name, settings, strategy, 2, memory, network="resnet", accumulate_gradients=2)
        ranks: list[dict[str, int]] = [{}] * _RANKS
        torch.distributed.all_gather_object(ranks, memory.held)
        most[label] = {kind: max(rank[kind] for rank in ranks) for kind in memory.held}
    return most


def _tables(result: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    size, first = result["image_size"], next(iter(result["gans"]))
    speeds = []
    for name, found in result["gans"].items():
        speed, counted = found["images_per_second"], found["bytes_per_step"]
        speeds.append(
            {
                **{"": name, "images/s, Lightning": f"{speed['lightning']['median']:.0f}"},
                **{"images/s, lit_gans": f"{speed['lit_gans']['median']:.0f}", "ratio": shown(found["ratio"], ".2f")},
                "bytes a step": f"{counted['lightning']:,} : {counted['lit_gans']:,}",
                "gradients": f"{found['gradient_bytes_per_step']:,}",
            }
        )
    memory = [
        {"": name, **{kind: f"{found[kind] / 1e6:.2f}" for kind in ("parameters", "gradients", "optimizer")}}
        for name, found in result["memory"].items()
    ]
    return {
        f"{_RANKS} processes, {size}x{size}, batch {result['batch_size']} each": speeds,
        f"MB that a rank of {_RANKS} holds: {first}, resnet, Adam": memory,
    }
