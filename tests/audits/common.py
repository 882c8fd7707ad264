"""Shared code of the drivers, which run scripts of other projects on CPU processes in float64 and save the weights.

A driver is a script for torchrun. It replaces code that needs a GPU, a download or a service, and then runs the script
of a project from a checkout. On one process, the same driver uses the concatenated batch of all processes.
"""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
REPAIRED = bool(os.environ.get("AUDIT_REPAIRED"))
BATCH = 8  # total batch size over all processes
LOCAL_BATCH = BATCH // WORLD_SIZE
STEPS = 3  # number of steps of each optimizer
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
_GLOO = distributed.init_process_group
# Python imports from the drivers' folder, where taming.py and ldm.py hide the namespace packages of the checkouts
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]


def checkout(name: str) -> Path:
    """Returns the checkout of a project, and lets Python import from it."""
    path = Path(os.environ["AUDIT_CHECKOUTS"], name).resolve()
    if not path.is_dir():
        raise FileNotFoundError(f"there is no checkout {path}: see tests/audits/__main__.py for its commit")
    return path


def run(script: Path, *arguments: object, replaced: tuple[tuple[str, str], ...] = (), name: str = "__main__") -> Any:
    """Runs a script, with some of its text replaced, and returns its namespace."""
    text = script.read_text()
    for old, new in replaced:
        if old not in text:
            raise ValueError(f"there is no '{old}' in {script}: is this the commit of the audit?")
        text = text.replace(old, new)
    sys.argv = [str(script), *map(str, arguments)]
    module = types.ModuleType(name)
    module.__file__ = str(script)
    sys.modules[name] = module  # scripts pickle, bind and inspect the names that they define
    exec(compile(text, str(script), "exec"), vars(module))
    return vars(module)


def absent(*names: str) -> None:
    """Replaces modules that the script imports but does not use here, because they are not installed."""
    for name in names:
        module = MagicMock(name=name)
        module.__spec__ = ModuleSpec(name, None)  # `importlib.util.find_spec` raises ValueError without a spec
        sys.modules.setdefault(name, module)


class _Rows(TorchFunctionMode):
    """Runs torch functions on the CPU in float64. Each row of the joined batch has the same noise on any world size.

    Args:
        interleaved: whether row `i` of a process is row `i * WORLD_SIZE + RANK` of the joined batch. Otherwise, a
            process has consecutive rows.
        exact: whether float32 is replaced by float64.
    """

    draws = 0  # number of the next draw, the same on all processes
    is_shared = True  # whether noise is replaced

    def __init__(self, interleaved: bool, exact: bool) -> None:
        super().__init__()
        self.interleaved, self.exact = interleaved, exact

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: self._moved(value) for name, value in (kwargs or {}).items()}
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        if func in (Tensor.cuda, Tensor.pin_memory):
            return args[0]
        if func in (Tensor.to, Tensor.type):
            args = (args[0], *("cpu" if type(each) is int else self._moved(each) for each in args[1:]))
        if func is Tensor.float and self.exact:
            return args[0].double()
        if self.is_shared and kwargs.get("generator") is None:
            kwargs.pop("generator", None)  # diffusers passes None
            if func in (torch.randn, torch.rand):
                size = args[0] if args and not isinstance(args[0], int) else args
                kwargs.pop("size", None) if args else None
                return self._noise(func, tuple(size or kwargs.pop("size", ())), kwargs)
            if func is torch.randint:
                numbers = dict(zip(("low", "high", "size") if len(args) == 3 else ("high", "size"), args, strict=False))
                numbers |= {name: kwargs.pop(name) for name in ("low", "high", "size") if name in kwargs}
                size, bounds = tuple(numbers.pop("size")), (numbers.get("low", 0), numbers["high"])
                return self._noise(lambda size, **options: func(*bounds, size, **options), size, kwargs)
            if func in (torch.randn_like, torch.rand_like):
                draw = torch.randn if func is torch.randn_like else torch.rand
                kwargs.pop("memory_format", None)
                return self._noise(draw, tuple(args[0].shape), {"dtype": args[0].dtype, **kwargs})
        return func(*args, **kwargs)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        if isinstance(value, str) and value.startswith("cuda"):
            return "cpu"
        return torch.float64 if self.exact and value is torch.float32 else value

    def _noise(self, draw: Any, size: tuple[int, ...], kwargs: dict[str, Any]) -> Tensor:
        _Rows.draws += 1
        generator = torch.Generator().manual_seed(self.draws)
        if (
            size and size[0] > LOCAL_BATCH and size[0] % BATCH == 0
        ):  # each process draws joined batches and uses its own rows
            noise = draw(size, generator=generator, **kwargs)
            rows = torch.arange(BATCH).view(-1, WORLD_SIZE).roll(-RANK, 1).T.flatten()
            return torch.cat([block[rows] for block in noise.split(BATCH)])
        rows = bool(size) and size[0] == LOCAL_BATCH
        noise: Tensor = draw((size[0] * WORLD_SIZE, *size[1:]) if rows else size, generator=generator, **kwargs)
        if not rows:
            return noise
        return (noise[RANK::WORLD_SIZE] if self.interleaved else noise.chunk(WORLD_SIZE)[RANK]).clone()


def share_noise(is_shared: bool) -> None:
    """Turns the replacement of noise on or off. It must be off while networks initialize their weights with `randn`."""
    _Rows.draws, _Rows.is_shared = 0, is_shared


class BatchNormOfAllRanks(nn.modules.batchnorm._BatchNorm):
    """Batch norm over all ranks. It replaces `SyncBatchNorm`, which needs a GPU."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not distributed.is_initialized() or distributed.get_world_size() == 1:
            return super().forward(input)
        dims = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        mean = all_reduce(input.mean(dims)) / distributed.get_world_size()
        square = all_reduce(input.square().mean(dims)) / distributed.get_world_size()
        variance = square - mean.square()
        normal = (input - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal

    @classmethod
    def converted(cls, module: nn.Module, process_group: Any = None) -> nn.Module:
        """Converts all batch norms of a module to this class, and returns the module."""
        for child in module.modules():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                child.__class__ = cls
        return module


@contextmanager
def cpu(*networks: str, interleaved: bool = True, exact: bool = True, claims_cuda: bool = False) -> Iterator[None]:
    """Runs code that was written for GPUs on CPU processes, and ends it after the watched steps.

    Args:
        networks: name of the network that each optimizer steps, in the order of their first steps.
        interleaved: see `_Rows`.
        exact: see `_Rows`.
        claims_cuda: whether `torch.cuda.is_available` returns true, for code that requires a GPU.
    """
    wrapper = nn.parallel.DistributedDataParallel
    wrap = wrapper.__init__

    def without_devices(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device_ids", "output_device")}
        wrap(self, module, **kwargs)

    def gloo(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        kwargs = {name: value for name, value in kwargs.items() if name in ("timeout",)}
        if not distributed.is_initialized():
            _GLOO("gloo", **kwargs)

    unused = ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "Event", "current_stream")
    cuda: dict[str, Any] = {name: MagicMock() for name in (*unused, "reset_peak_memory_stats")}
    cuda |= {name: MagicMock(return_value=0) for name in ("max_memory_allocated", "max_memory_reserved")}
    cuda["device_count"] = lambda: 8
    if claims_cuda:
        cuda["is_available"] = lambda: True
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if exact:
        torch.set_default_dtype(torch.float64)
    _keep(networks)
    with (
        # without it, accelerate ignores the other processes if there is no GPU, and each process is a main process
        patch.dict(os.environ, {"ACCELERATE_USE_CPU": "true"}),
        patch.multiple(torch.cuda, **cuda),
        patch.object(torch.accelerator, "is_available", lambda: False),
        patch.object(wrapper, "__init__", without_devices),
        patch.object(distributed, "init_process_group", gloo),
        patch.object(nn.SyncBatchNorm, "convert_sync_batchnorm", BatchNormOfAllRanks.converted),
        _Rows(interleaved, exact),
    ):
        yield


def _keep(networks: tuple[str, ...]) -> None:
    """Registers hooks that save the weights before the first and after the last compared step, and end the script."""
    before: dict[int, list[Tensor]] = {}
    optimizers: dict[int, Optimizer] = {}
    steps: Counter[int] = Counter()

    def weights(optimizer: Optimizer) -> list[Tensor]:
        groups = (group["params"] for group in optimizer.param_groups)
        return [each.detach().clone().double() for group in groups for each in group]

    def first(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in before:
            optimizers[id(optimizer)] = optimizer
            before[id(optimizer)] = weights(optimizer)

    def last(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        steps[id(optimizer)] += 1
        if len(steps) < len(networks) or min(steps.values()) < STEPS:
            return
        kept = {name: (before[key], weights(optimizers[key])) for name, key in zip(networks, optimizers, strict=True)}
        torch.save(kept, Path(os.environ.get("AUDIT_OUT", "."), f"{WORLD_SIZE}_{RANK}.pt"))
        if distributed.is_initialized():
            distributed.barrier()
        raise SystemExit(0)

    register_optimizer_step_pre_hook(first)
    register_optimizer_step_post_hook(last)


def in_order() -> None:
    """Disables shuffling, because accelerate's order depends on the number of processes."""
    RandomSampler.__iter__ = lambda self: iter(range(len(self.data_source)))  # type: ignore[method-assign]


def random_rows(number: int, *size: int) -> Tensor:
    """Returns random rows, which are equal on all processes."""
    return torch.rand(number, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loader(rows: Any) -> DataLoader[Any]:
    """Returns a loader of this process's batches. `DistributedSampler` shuffles the rows."""
    return DataLoader(rows, LOCAL_BATCH, sampler=DistributedSampler(rows, WORLD_SIZE, RANK))


def images(size: int = 32, number: int = 96) -> Path:
    """Returns a folder of random images, which all processes share."""
    from PIL import Image

    folder = Path(os.environ.get("AUDIT_OUT", "."), "images")
    if RANK == 0 and not folder.is_dir():
        generator = torch.Generator().manual_seed(1)
        (folder / "one").mkdir(parents=True)
        for index in range(number):
            pixels = torch.randint(256, (size, size, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / "one" / f"{index:04}.png")
        (folder / "ready").touch()
    while not (folder / "ready").exists():
        pass
    return folder


def zero_loss(*args: Any, **kwargs: Any) -> Callable[..., Tensor]:
    """Returns a module that replaces a perceptual loss, whose weights would be downloaded, and returns 0."""

    class Zero(nn.Module):
        def forward(self, first: Tensor, *others: Any, **named: Any) -> Tensor:
            return first.sum() * 0

    return Zero()
