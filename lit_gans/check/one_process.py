"""Repeats the first steps of a script on one process with the batches of all ranks, and compares the weights.

Each rank saves the batches of its DataLoaders and its random numbers. The second run receives the batches of all ranks,
concatenated in the order of the ranks. Random numbers that differ between the ranks are concatenated in the same way.
Some values cannot be concatenated, such as a number that each rank draws for its whole batch. Such values end the
comparison, and the report names them.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from lit_gans.check.findings import Finding
from lit_gans.check.names import line_of_script
from lit_gans.check.recorder import Recorder
from lit_gans.check.tensors import is_sharded
from lit_gans.common._compat.torch import NUMBER_OF_TENSOR, TorchDispatchMode, tree_map
from lit_gans.common.errors import RefusedInput

_LIGHTNING = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")
_WHOLE_BATCH = "Compute values that depend on the whole batch from the batches of all ranks."
_STATISTICS = (
    "Batch norms use the statistics of each rank: use torch.nn.SyncBatchNorm (CUDA only). To find other causes, compare"
    " with batch norms in evaluation mode."
)
FAR = 0.01  # largest difference that is due to rounding, relative to the change of the weights


@dataclass
class RandomDraw:
    """Random numbers, with the operator that draws them, and the line of the script that calls the operator."""

    operator: str
    line: str
    values: Tensor


@dataclass
class RunRecord:
    """Batches and random numbers that a process received, and the weights that it trained.

    Attributes:
        draws: random numbers in the order in which they were drawn.
        batches: batches of each iterator over a DataLoader, in the order in which the iterators were created.
        rows: total number of rows in the inputs of each network, by the network's name.
        weights: weights that each optimizer steps, after the compared steps, by the parameter's name.
        moved: norm of each weight's change over the compared steps.
        lightning: imported packages that contain a Trainer or Fabric.
        error: reason why the process cannot be compared; empty if it can.
    """

    draws: list[RandomDraw] = field(default_factory=list)
    batches: list[list[Any]] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    moved: dict[str, dict[str, float]] = field(default_factory=dict)
    lightning: list[str] = field(default_factory=list)
    error: str = ""


class NotJoined(Exception):
    """Raised if the run on one process cannot be compared with the ranks."""


class _Finished(SystemExit):
    """Ends the second run after its last compared step."""


def folder_of_run() -> Path:
    """Returns the folder in which the ranks of a node save their `RunRecord`s."""
    run = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}_{os.environ.get('MASTER_PORT', '')}"
    return Path(tempfile.gettempdir(), f"lit_gans_check_{os.getuid()}_{run}")


def make_private(folder: Path) -> None:
    """Creates a folder that only this user can write to: its files are unpickled, which can execute code.

    Raises:
        RefusedInput: if the folder exists and belongs to another user, or if other users can write to it.
    """
    folder.mkdir(0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RefusedInput(f"{folder} holds files that are unpickled, but other users can write to it: remove it.")


class RecordingMode(TorchDispatchMode):
    """Context manager that records the batches, the random numbers and the trained weights of a rank.

    Args:
        steps: number of steps of each optimizer after which the weights are compared.
        recorder: function that returns the recorder of the check. The recorder names optimizers and parameters.
    """

    def __init__(self, steps: int, recorder: Callable[[], Recorder | None]) -> None:
        super().__init__()
        self.steps, self.recorder = steps, recorder
        self.run = RunRecord()
        self.ended = False  # whether each optimizer has run its compared steps
        self._loads = False  # whether a DataLoader is loading a batch; its random numbers are not recorded
        self._before: dict[int, list[Tensor]] = {}  # weights before the first step, by the id of the optimizer
        self._numbers: dict[str, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Any:
        iterate = DataLoader.__iter__

        def observed(loader: DataLoader[Any]) -> Iterator[Any]:
            return self.iterator(functools.partial(iterate, loader))

        self._stack.enter_context(patch.object(DataLoader, "__iter__", observed))
        for register, hook in (
            (register_optimizer_step_pre_hook, self._before_step),
            (register_optimizer_step_post_hook, self._after_step),
        ):
            self._stack.callback(register(hook).remove)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()

    # ---- batches

    def iterator(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Returns an iterator over the batches of a DataLoader. The iterator also records the batches."""
        return _Batches(self._saved(iterate))

    def _saved(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        saved: list[Any] = []
        self.run.batches.append(saved)
        batches = None
        while True:
            self._loads = True
            try:
                batches = iterate() if batches is None else batches
                batch = next(batches, self)
            finally:
                self._loads = False
            if batch is self:
                return
            if not self.ended:
                saved.append(tree_map(_copied, batch))
            yield batch

    # ---- random numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is NUMBER_OF_TENSOR and not isinstance(args[0], Tensor):
            return args[0]  # a Python number, which torch passes to dispatch modes without wrapping it in a tensor
        if self.ended or self._loads or torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        return self.draw(func, args, kwargs)

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draws random numbers, and records them."""
        values = func(*args, **kwargs)
        saved = _copied(values) if isinstance(values, Tensor) else torch.empty(0)
        self.run.draws.append(RandomDraw(func.overloadpacket.__name__, line_of_script(), saved))
        return values

    # ---- weights

    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self.ended and id(optimizer) not in self._before:  # by id, because the name is not known yet
            self._before[id(optimizer)] = [_copied(parameter) for parameter in _unsharded(optimizer)]

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.ended:
            return
        recorder = self.recorder()
        assert recorder is not None
        name = recorder.names.of_optimizer(optimizer)
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        if number == self.steps:
            parameters = _unsharded(optimizer)
            names = [recorder.names.of_parameter(each) or f"parameter {i}" for i, each in enumerate(parameters)]
            weights = dict(zip(names, map(_copied, parameters), strict=True))
            before = dict(zip(names, self._before[id(optimizer)], strict=True))
            self.run.weights[name] = weights
            self.run.moved[name] = {each: _norm(value - before[each]) for each, value in weights.items()}
        self.ended = all(each >= self.steps for each in self._numbers.values())
        if self.ended:
            self.run.rows = dict(recorder.rows)
            self.end()

    def save(self, file: Path, error: BaseException | None) -> None:
        """Saves the `RunRecord` of this process."""
        self.run.lightning = [name for name in _LIGHTNING if name in sys.modules]
        if not self.ended:
            self.run.error = f"the script has ended before step {self.steps} of each optimizer"
            if error is not None:
                self.run.error = str(error) if isinstance(error, NotJoined) else f"{type(error).__name__}: {error}"
        if file.parent.is_dir():  # rank 0 removes the folder if it no longer waits for this rank
            torch.save(self.run, file.with_suffix(".part"))
            file.with_suffix(".part").rename(file)  # so that rank 0 never reads half a file

    def end(self) -> None:
        """Called after the last compared step."""


class ReplayMode(RecordingMode):
    """Context manager for the second run. It passes the batches and the random numbers of all ranks to the script.

    Args:
        steps: number of compared steps of each optimizer.
        recorder: function that returns the recorder of the check.
        ranks: records of all ranks.
    """

    def __init__(self, steps: int, recorder: Callable[[], Recorder | None], ranks: Sequence[RunRecord]) -> None:
        super().__init__(steps, recorder)
        self.ranks = ranks

    def iterator(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Returns an iterator that concatenates the next batches of all ranks."""
        return _Batches(self._joined())

    def _joined(self) -> Iterator[Any]:
        number = len(self.run.batches)
        self.run.batches.append([])
        loaded = [rank.batches[number] if number < len(rank.batches) else [] for rank in self.ranks]
        for batches in zip(*loaded, strict=False):
            yield tree_map(_concatenated, *batches)

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Returns the random numbers of the ranks if they are equal on all ranks, and otherwise concatenates them."""
        number, operator, line = len(self.run.draws), func.overloadpacket.__name__, line_of_script()
        draws = [rank.draws[number] for rank in self.ranks if number < len(rank.draws)]
        values = func(*args, **kwargs)
        self.run.draws.append(RandomDraw(operator, line, torch.empty(0)))
        if len(draws) < len(self.ranks) or any((draw.operator, draw.line) != (operator, line) for draw in draws):
            there = draws[0].line if draws else "the end"
            raise NotJoined(f"one process draws random numbers at {line}, where the ranks draw them at {there}")
        if not isinstance(values, Tensor):
            raise NotJoined(f"the random numbers of {operator} at {line} cannot be replaced")
        drawn, is_weight = [draw.values for draw in draws], bool(args) and isinstance(args[0], nn.Parameter)
        equal = is_weight or all(torch.equal(each, drawn[0]) for each in drawn)
        given = drawn[0] if equal and drawn[0].shape == values.shape else None
        if given is None and values.dim() and all(each.dim() == values.dim() for each in drawn):
            given = torch.cat(drawn)
        in_place = operator.endswith("_")
        if given is None or given.shape[1:] != values.shape[1:] or (in_place and given.shape != values.shape):
            if equal:  # for example data whose size depends on the number of ranks
                return values
            shapes = ", ".join(str(tuple(each.shape)) for each in drawn)
            raise NotJoined(
                f"{operator} at {line} draws {tuple(values.shape)} on one process, and {shapes} on the ranks"
            )
        given = given.to(values)
        return args[0].copy_(given) if in_place else given

    def end(self) -> None:
        raise _Finished(0)


class _Batches(Iterator[Any]):
    """Iterator over batches, with the attributes that training loops read from a DataLoader's iterator."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)


def _unsharded(optimizer: Optimizer) -> list[Tensor]:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [parameter for parameter in parameters if not is_sharded(parameter)]


def _copied(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _concatenated(first: Any, *others: Any) -> Any:
    if isinstance(first, Tensor) and first.dim():
        return torch.cat([first, *others])
    if all(type(other) is type(first) and bool(other == first) for other in others):
        return first
    raise NotJoined(f"batches have {type(first).__name__} that differ between the ranks")


def _norm(tensor: Tensor) -> float:
    return float(tensor.double().norm())


# ---- both runs


def record_script(script: Callable[[], object], steps: int, recorder: Callable[[], Recorder | None]) -> None:
    """Runs a script on a rank, and saves its `RunRecord`."""
    folder = folder_of_run()
    make_private(folder)
    file = folder / f"{os.environ.get('RANK', '0')}.pt"
    file.unlink(missing_ok=True)  # left behind by a previous run that was killed
    _save(script, RecordingMode(steps, recorder), file)


def replay_script(
    script: Callable[[], object], folder: Path, steps: int, recorder: Callable[[], Recorder | None]
) -> None:
    """Runs a script on one process with the recorded batches and random numbers of the ranks."""
    files = sorted(folder.glob("*.pt"), key=lambda file: int(file.stem))
    ranks = [torch.load(file, weights_only=False) for file in files]
    with use_one_device(ranks[0].lightning):
        _save(script, ReplayMode(steps, recorder, ranks), folder / "joined.pt")


def _save(script: Callable[[], object], mode: RecordingMode, file: Path) -> None:
    error: BaseException | None = None
    try:
        with mode:
            script()
    except BaseException as raised:
        error = raised
        raise
    finally:
        mode.save(file, error)


def second_run(
    folder: Path, world_size: int, steps: int, arguments: Sequence[str]
) -> tuple[list[RunRecord], RunRecord]:
    """Runs the script on one process. Returns the records of the ranks and of this run.

    Raises:
        NotJoined: if a rank has not ended.
    """
    for rank in range(world_size):
        if not (folder / f"{rank}.pt").is_file():
            raise NotJoined(f"rank {rank} has not ended within --patience seconds")
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]
    for file in folder.glob("*.pt"):
        if file.stem not in {*map(str, range(world_size))}:  # left behind by a previous run that was killed
            file.unlink()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "lit_gans.check", "--replay", str(folder), "--against-one", str(steps), *arguments]
    ran = subprocess.run(command, env=kept | alone | address, capture_output=True, encoding="utf-8")
    file = folder / "joined.pt"
    joined = torch.load(file, weights_only=False) if file.is_file() else RunRecord(error=ran.stderr[-2000:])
    return ranks, joined


def use_one_device(packages: Sequence[str]) -> ExitStack:
    """Returns a context manager that makes Lightning's Trainer and Fabric use one device."""
    stack = ExitStack()
    for package in packages:
        for name in ("Trainer", "Fabric"):
            cls = getattr(import_module(package), name, None)
            if cls is not None:
                stack.enter_context(patch.object(cls, "__init__", _on_one_device(cls.__init__)))
    return stack


def _on_one_device(begin: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(begin)
    def begin_on_one_device(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs | {"devices": 1, "num_nodes": 1})

    return begin_on_one_device


def against_one_process(
    world_size: int, steps: int, arguments: Sequence[str], has_local_statistics: bool
) -> list[Finding]:
    """Repeats the script on one process, and returns one finding per optimizer with the difference of its weights.

    Args:
        world_size: number of ranks.
        steps: number of compared steps of each optimizer.
        arguments: the script and its arguments.
        has_local_statistics: whether batch norms use the statistics of each rank.
    """
    try:
        if os.environ.get("LOCAL_WORLD_SIZE", str(world_size)) != str(world_size):
            raise NotJoined("the ranks run on several nodes")
        found = differences(*second_run(folder_of_run(), world_size, steps, arguments))
    except NotJoined as error:
        return [Finding("not_compared", "one process", str(error))]
    finally:
        shutil.rmtree(folder_of_run(), ignore_errors=True)
    findings = []
    for name, off in found.items():
        what = f"{off:.1e} of the distance that {steps} steps have moved a parameter, at most"
        kind, remedy = "as_on_one_process", ""
        if off > FAR:
            kind, remedy = "differs_from_one_process", _STATISTICS if has_local_statistics else _WHOLE_BATCH
        findings.append(Finding(kind, name, f"its weights differ from those of one process by {what}", remedy))
    return findings


def differences(ranks: Sequence[RunRecord], joined: RunRecord) -> dict[str, float]:
    """Returns each optimizer's largest difference of a parameter, relative to the parameter's change in training.

    Raises:
        NotJoined: if the runs cannot be compared, for example because the second run received different data.
    """
    for run in (*ranks, joined):
        if run.error:
            raise NotJoined(run.error)
    for name, rows in joined.rows.items():
        together = [rank.rows.get(name, 0) for rank in ranks]
        if rows != sum(together):
            raise NotJoined(
                f"{name} has received {rows} rows on one process, and {' + '.join(map(str, together))} on the ranks:"
                " its batches do not come from a DataLoader"
            )
    found = {}
    for name, weights in ranks[0].weights.items():
        if not weights:
            raise NotJoined(f"the weights of {name} are sharded")
        others, moved = joined.weights.get(name, {}), ranks[0].moved[name]
        if {each: value.shape for each, value in weights.items()} != {
            each: value.shape for each, value in others.items()
        }:
            raise NotJoined(f"{name} has other parameters on one process")
        found[name] = max(relative_differences(weights, others, moved).values(), default=0.0)
    return found


def relative_differences(
    weights: Mapping[str, Tensor], others: Mapping[str, Tensor], moved: Mapping[str, float]
) -> dict[str, float]:
    """Returns the difference of each parameter between two trainings, relative to its change in training.

    Args:
        weights: parameters after the first training, by name.
        others: the same parameters after the second training.
        moved: norm of each parameter's change in training. A parameter that changed by less than a thousandth of the
            largest norm counts as changed by this thousandth: its difference is mostly rounding.
    """
    least = max(1e-3 * max(moved.values(), default=0.0), 1e-30)
    return {name: _norm(value - others[name]) / max(moved[name], least) for name, value in weights.items()}
