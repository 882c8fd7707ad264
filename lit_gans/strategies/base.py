"""Ranks end together: one that fails ends the processes that it started, they follow their parent, and none waits long
for another.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies.strategy import Strategy
from torch import Tensor, distributed, nn
from torch.distributed import PrefixStore, distributed_c10d
from torch.utils.hooks import RemovableHandle

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.common.atomic import remove, replace
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.module_networks import (
    average_over_ranks,
    copy_from_first_rank,
    refuse_frozen,
    refuse_second_differentiation,
    running_statistics,
    storages,
)
from lit_gans.strategies.rendezvous import attempt_store

_START = timedelta(minutes=10)  # that ranks wait for each other at the start, if not longer
_PARENT = "LIT_GANS_PARENT"  # the process that starts others
_CHECK = 1.0  # seconds between two looks at the parent
_GRACE = 3.0  # seconds that a process has to end by itself
_WORLDS = count()  # the groups of all processes that this process was in: a sweep's runs one after the other


def end_children(launcher: Any) -> None:
    """Ends the processes that Lightning's launcher started: also those that hang, which Lightning leaves alive."""
    processes: list[subprocess.Popen] = list(getattr(launcher, "procs", ()))
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def follow_parent() -> None:
    """Ends this process, whatever it waits for, when the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()


class NetworkStrategy:
    """What every strategy of several processes does, mixed in before Lightning's class.

    No process is left behind; the timeout counts once all ranks have started; all ranks begin with the parameters and
    buffers of the first; running statistics of norms are averaged over the ranks after each training step. Other
    buffers are each rank's own.
    """

    _failed = False
    _statistics: list[Tensor] | None = None
    _hooks: tuple[RemovableHandle, ...] = ()

    def _configure_launcher(self) -> None:
        super()._configure_launcher()
        # what is started has this environment, and cannot tell by whom
        if not self.cluster_environment.creates_processes_externally:
            os.environ[_PARENT] = str(os.getpid())

    def setup_environment(self) -> None:
        if type(self.checkpoint_io) is TorchCheckpointIO:
            self.checkpoint_io = CheckpointFiles()
        waits, self._timeout = self._timeout, max(self._timeout, _START)  # processes do not start all at once
        self._join()
        super().setup_environment()
        self.barrier()
        self._timeout = waits
        limit_waiting(waits)
        if os.environ.get(_PARENT) == str(os.getppid()):
            follow_parent()

    def _join(self) -> None:
        """Makes the group of all processes where torchrun started them: Lightning takes what there is."""
        store = None if distributed.is_initialized() else attempt_store()
        if store is None:
            return
        self.accelerator.setup_device(self.root_device)
        distributed.init_process_group(
            self._get_process_group_backend(),
            store=PrefixStore(f"world/{next(_WORLDS)}", store),
            rank=self.cluster_environment.global_rank(),
            world_size=self.cluster_environment.world_size(),
            timeout=self._timeout,
            device_id=None if self.root_device.type == "cpu" else self.root_device,
        )
        atexit.register(_leave)

    def refuse(self, module: LightningModule, precision: str) -> None:
        """Raises `RefusedInput` where this strategy cannot train a module in a precision."""

    def setup(self, trainer: Trainer) -> None:
        self.refuse(self.lightning_module, str(trainer.precision))
        copy_from_first_rank(self.lightning_module, self.root_device)
        self.shard_networks()
        super().setup(trainer)

    def shard_networks(self) -> None:
        """Cuts the networks over the ranks before there are optimizers, where a strategy does."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        refuse_frozen(self.optimizers, self.lightning_module)

    def refuse_penalty(self, network: nn.Module, sentence: str) -> None:
        """Lets a gradient penalty on a network raise `RefusedInput` with a sentence, until the training ends."""
        self._hooks += (refuse_second_differentiation(network, sentence),)

    def refuse_unknown(self, network: str | None, names: Iterable[str]) -> None:
        """Raises `RefusedInput` where a backward names a network that there is not."""
        if network is not None and network not in names:
            raise RefusedInput(f"manual_backward(loss, network={network!r}): the networks are {', '.join(names)}.")

    def bytes_held(self) -> dict[str, int]:
        """Returns how many bytes of parameters, gradients and optimizer states this rank has now."""
        held = {name: storages(tensors) for name, tensors in self.tensors_held().items()}
        for address in held["parameters"]:
            held["optimizer"].pop(address, None)
        return {name: sum(pieces.values()) for name, pieces in held.items()}

    def tensors_held(self) -> dict[str, list[Tensor]]:
        """Returns this rank's parameters, gradients and optimizer states."""
        parameters = list(self.lightning_module.parameters())
        states = (state for optimizer in self.optimizers for state in optimizer.state.values())
        return {
            "parameters": parameters,
            "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
            "optimizer": [value for state in states for value in state.values() if isinstance(value, Tensor)],
        }

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        output = super().training_step(*args, **kwargs)
        if self._statistics is None:
            self._statistics = running_statistics(self.lightning_module)
        average_over_ranks(self._statistics)
        return output

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        super().on_exception(exception)
        end_children(self.launcher)

    def teardown(self) -> None:
        self._statistics = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        super().teardown()


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def limit_waiting(timeout: timedelta) -> None:
    """Sets how long this rank waits for the others in every group that there is."""
    # torch 2.15 made it public
    set_timeout = getattr(distributed_c10d, "set_timeout", None) or distributed_c10d._set_pg_timeout
    for group in list(distributed_c10d._world.pg_map):
        set_timeout(timeout, group)


@contextmanager
def replacing(path: Path, strategy: Strategy) -> Iterator[Path]:
    """Gives a new folder to all ranks, which takes the place of `path` when all have written: see `replace`."""
    part = path.with_name(f"{path.name}.part")
    if strategy.is_global_zero:
        remove(part)
        part.mkdir(parents=True)
    strategy.barrier()
    yield part
    strategy.barrier()
    if strategy.is_global_zero:
        replace(part, path)
    strategy.barrier()
