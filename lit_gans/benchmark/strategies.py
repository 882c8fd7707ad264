"""`lit-gans bench strategies`: a replica for each network beside Lightning's own DDP; what each strategy keeps."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, Strategy
from rich.console import Console
from rich.table import Table
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from lit_gans.benchmark.measure import environment, spread
from lit_gans.common.errors import RefusedInput
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.adversarial import AdversarialModule

_RANKS = 2
_WARMUP = 2
_KINDS = ("lightning", "lit_gans")
_PRESETS = {
    "full": {"rounds": 11, "steps": 8, "image_size": 32, "width": 32, "batch_size": 16},
    "smoke": {"rounds": 1, "steps": 2, "image_size": 16, "width": 4, "batch_size": 2},
}


def strategies(
    preset: Literal["full", "smoke"] = "full",
    gans: list[str] = ["dcgan", "wgan_gp", "d2gan"],  # noqa: B006 - read only
    rounds: int | None = None,
    steps: int | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """Times `NetworkDDP` and `ddp_find_unused_parameters_true` in turns, on two CPU processes over gloo.

    Both train the same module on the same images; a round is some steps of one and as many of the other, in changing
    order. Bytes are counted at each all-reduce: those of gradients, and apart from them ours of running statistics
    (Lightning broadcasts its buffers below Python, uncounted). Then the first GAN is trained under each strategy, with
    residual networks, Adam and two parts of a batch, and what a rank holds is measured: parameters and optimizer states
    after an iteration, gradients at the end of the backward after which they are most. Prints two tables and a line of
    JSON.

    Args:
        preset: `smoke` ends in seconds: its times mean nothing.
        gans: which GANs.
        rounds: rounds; null is the preset's number.
        steps: timed steps of each in a round; null is the preset's number.
        output: JSON file to write as well.

    Returns:
        `gans`, for each: images a second and bytes a step of both, the ratio of their speeds with quartiles over the
        rounds, and the bytes of the gradients of the networks that a step trains. `memory`, for each strategy: bytes
        that a rank holds, the larger of the two.
    """
    settings = dict(_PRESETS[preset])
    settings |= {name: value for name, value in {"rounds": rounds, "steps": steps}.items() if value is not None}
    unknown = [name for name in gans if name not in registered()]
    if unknown:
        raise RefusedInput(f"gans={unknown}: there are {', '.join(sorted(registered()))}.")
    if min(settings.values()) < 1:
        raise RefusedInput(f"rounds={rounds} and steps={steps} must be at least 1.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        _start({"gans": gans, **settings, "file": str(file)})
        found = json.loads(file.read_text())
    result = {"benchmark": "strategies", "preset": preset, "ranks": _RANKS, **settings}
    result |= {**environment(torch.device("cpu")), **found}
    _print_table(result)
    print(json.dumps(result))
    if output is not None:
        Path(output).write_text(json.dumps(result, indent=2) + "\n")
    return result


def _start(settings: dict[str, Any]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(_RANKS), "LOCAL_WORLD_SIZE": str(_RANKS), "GROUP_RANK": "0", "MASTER_PORT": str(port)}
    common |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "bench", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lit_gans.benchmark.strategies", json.dumps(settings)]
    ranks = [
        subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(_RANKS)
    ]
    try:
        codes = [process.wait() for process in ranks]
        if any(codes):
            raise RuntimeError("a process of the benchmark failed: see above.")
    finally:
        for process in ranks:
            process.kill()


# ---- in each of the two processes


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
    """Counts the bytes that all-reduces take, those of gradients apart from others."""

    def __init__(self) -> None:
        self.gradients, self.others = 0, 0
        self._in_hook = False

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        strategy = trainer.strategy
        replicas = strategy.replicas.values() if isinstance(strategy, NetworkDDP) else [strategy.model]
        for replica in replicas:
            replica.register_comm_hook(None, self._hook)
        self._all_reduce = torch.distributed.all_reduce
        torch.distributed.all_reduce = self._counted

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
    """Looks at what this rank holds."""

    def __init__(self) -> None:
        self.gradients = 0
        self.held: dict[str, int] = {}

    def on_after_backward(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        self.gradients = max(self.gradients, trainer.strategy.bytes_held()["gradients"])

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.held = trainer.strategy.bytes_held() | {"gradients": self.gradients}


def _sharded() -> dict[str, Strategy]:
    found: dict[str, Strategy] = {"ddp": NetworkDDP()}
    if importlib.util.find_spec("deepspeed"):
        whole = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}  # else small layers stay whole
        found |= {f"deepspeed stage {stage}": NetworkDeepSpeed(stage=stage, config=whole) for stage in (1, 2, 3)}
    return found | {"fsdp": NetworkFSDP()}


def _memory(name: str, settings: dict[str, Any]) -> dict[str, dict[str, int]]:
    most = {}
    for label, strategy in _sharded().items():
        memory = _Memory()
        # parameters of like sizes: ZeRO's ranks keep the whole gradient of one that is cut
        _fit(name, strategy, settings, 2, memory, "resnet", accumulate_gradients=2)
        ranks: list[dict[str, int]] = [{}] * _RANKS
        torch.distributed.all_gather_object(ranks, memory.held)
        most[label] = {kind: max(rank[kind] for rank in ranks) for kind in memory.held}
    return most


def _strategy(kind: str) -> Strategy:
    return NetworkDDP() if kind == "lit_gans" else DDPStrategy(find_unused_parameters=True)


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
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=_RANKS,
        strategy=strategy,
        callbacks=[callback],
        use_distributed_sampler=False,
        **dict.fromkeys(switches, False),
    )
    trainer.fit(module, _Images(settings["batch_size"] * module.batches_per_step, module))
    return module


def _bytes(parameters: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def _compare(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    counted: dict[str, int] = {}
    others: dict[str, int] = {}
    for kind in _KINDS:
        counter = _Counter()
        module = _fit(name, _strategy(kind), settings, 2, counter)
        counted[kind], others[kind] = counter.gradients // 2, counter.others // 2
    images = settings["batch_size"] * module.n_critic * _RANKS
    expected = module.n_critic * sum(_bytes(getattr(module, n).parameters()) for n in module.discriminator_names)
    speeds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for index in range(settings["rounds"]):
        for kind in _KINDS[:: 1 if index % 2 else -1]:
            clock = _Clock()
            _fit(name, _strategy(kind), settings, settings["steps"] + _WARMUP, clock)
            speeds[kind].append(images / spread(clock.seconds[_WARMUP:])["median"])
    ratios = [ours / theirs for ours, theirs in zip(speeds["lit_gans"], speeds["lightning"], strict=True)]
    return {
        "images_per_second": {kind: spread(values) for kind, values in speeds.items()},
        "ratio": spread(ratios),
        "bytes_per_step": counted,
        "other_bytes_per_step": others,
        "gradient_bytes_per_step": expected + _bytes(module.generator.parameters()),
    }


def _rank() -> None:
    settings = json.loads(sys.argv[1])
    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {"gans": {name: _compare(name, settings) for name in settings["gans"]}}
    found["memory"] = _memory(settings["gans"][0], settings)
    if os.environ["RANK"] == "0":
        Path(settings["file"]).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


# ---- the table


def _print_table(result: dict[str, Any]) -> None:
    size = result["image_size"]
    table = Table(title=f"{_RANKS} processes, {size}x{size}, batch {result['batch_size']} each")
    for column in ("", "images/s, Lightning", "images/s, lit_gans", "ratio (quartiles)", "bytes a step", "gradients"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, found in result["gans"].items():
        speed, ratio, counted = found["images_per_second"], found["ratio"], found["bytes_per_step"]
        table.add_row(
            name,
            f"{speed['lightning']['median']:.0f}",
            f"{speed['lit_gans']['median']:.0f}",
            f"{ratio['median']:.2f} ({ratio['lower_quartile']:.2f} .. {ratio['upper_quartile']:.2f})",
            f"{counted['lightning']:,} : {counted['lit_gans']:,}",
            f"{found['gradient_bytes_per_step']:,}",
        )
    held = Table(title=f"MB that a rank of {_RANKS} holds: {next(iter(result['gans']))}, resnet, Adam")
    for column in ("", "parameters", "gradients", "optimizer"):
        held.add_column(column, justify="right", no_wrap=True)
    for name, found in result["memory"].items():
        held.add_row(name, *(f"{found[kind] / 1e6:.2f}" for kind in ("parameters", "gradients", "optimizer")))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(held)


if __name__ == "__main__":
    _rank()
