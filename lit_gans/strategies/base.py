"""Base class of all strategies: setup, process lifetime and memory counts, mixed in before Lightning's class."""

from __future__ import annotations

import os
import uuid
from copy import deepcopy
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.common._compat.lightning import process_group_backend
from lit_gans.common._compat.torch import default_store
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.binding import Bind, CoreBinding
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.manual_optimization import WatchManualOptimization
from lit_gans.strategies.module_networks import (
    Network,
    find_networks,
    refuse_second_differentiation,
    refuse_unstepped,
    stepped_network,
)
from lit_gans.strategies.process_lifetime import announce_parent, end_children, follow_parent
from lit_gans.strategies.rank_positions import Positions, PositionWatch, RanksDisagree
from lit_gans.strategies.rank_tensors import average_over_ranks, broadcast_from_first_rank, running_statistics, storages
from lit_gans.strategies.rendezvous import join_world, limit_waiting, starting_timeout

_LONGEST_TIMEOUT = 1e9  # seconds: what a timedelta and torch's milliseconds hold


class NetworkStrategy:
    """Base class of multi-process strategies, to be mixed in before Lightning's class.

    No process outlives a failed run. Ranks that train different networks end within seconds, see `rank_positions`. The
    timeout applies once all ranks have started. Parameters and buffers are
    broadcast from rank 0 at the start. Running statistics of norms are averaged over the ranks after each training
    step; other buffers remain local to each rank.

    The class attributes are the defaults of the protocols in `contracts`; a strategy that wraps networks overrides
    `refuse`, `prepare_networks` or Lightning's hooks.

    A network is what one optimizer steps, see `module_networks`. Everything else in the module, such as a frozen
    teacher or an average, remains as the module has it.
    """

    backward_names_network = True  # `manual_backward(loss, network=NAME)`
    clips_gradients = False
    is_sharded = False

    _failed = False
    _statistics: list[Tensor] | None = None
    _hooks: tuple[RemovableHandle, ...] = ()
    _watch: WatchManualOptimization | None = None
    _position_watch: PositionWatch | None = None
    _binding: CoreBinding | None = None

    def __init__(self, *, timeout: float, bind: Bind = "none", **kwargs: Any) -> None:
        if not 0 < timeout <= _LONGEST_TIMEOUT:
            raise RefusedInput(f"timeout={timeout} must be greater than 0 seconds and at most {_LONGEST_TIMEOUT:.0e}.")
        super().__init__(timeout=starting_timeout(timeout), **kwargs)
        self.bind = bind
        self.networks: dict[str, Network] = {}
        self.positions = Positions()
        self._waits = timedelta(seconds=timeout)

    # ---- setup and end

    def _configure_launcher(self) -> None:  # Lightning's hook for it, though its name is private
        super()._configure_launcher()
        if not self.cluster_environment.creates_processes_externally:
            announce_parent()

    def setup_environment(self) -> None:
        if type(self.checkpoint_io) is TorchCheckpointIO:
            self.checkpoint_io = CheckpointFiles()
        if self.bind == "cores":  # before the threads of the process group begin, and after Lightning's processes
            self._binding = CoreBinding(self.cluster_environment.local_rank(), self.processes_per_node)
        self._join_world()
        super().setup_environment()
        self.barrier()
        self.limit_waiting()
        follow_parent()

    @property
    def processes_per_node(self) -> int:
        """Number of processes on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.num_processes))

    def _join_world(self) -> None:
        environment = self.cluster_environment
        if self.root_device.type != "cpu":
            self.accelerator.setup_device(self.root_device)
        join_world(
            process_group_backend(self),
            environment.global_rank(),
            environment.world_size(),
            self.root_device,
            starting_timeout(self._waits.total_seconds()),
        )

    def limit_waiting(self) -> None:
        """Sets the timeout of all existing process groups; must be called again after creating new ones."""
        limit_waiting(self._waits)

    def refuse(self, module: LightningModule, precision: str) -> None:
        """Raises `RefusedInput` if this strategy cannot train a module in a precision."""

    def setup(self, trainer: Trainer) -> None:
        self.refuse(self.lightning_module, str(trainer.precision))
        plugin = self.precision_plugin
        if type(plugin) is MixedPrecision and plugin.scaler is not None:
            # each network gets a copy of the scaler that the user set
            self.precision_plugin = NetworkScaling(plugin.device, partial(deepcopy, plugin.scaler))
        broadcast_from_first_rank(self.lightning_module, self.root_device)
        self.prepare_networks(trainer)
        super().setup(trainer)

    def prepare_networks(self, trainer: Trainer) -> None:
        """Prepares the networks before they are moved to the device; does nothing by default."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        self.networks = find_networks(self.optimizers, self.lightning_module)
        refuse_unstepped(self.networks, self.lightning_module)

    def on_train_start(self) -> None:
        self._watch = WatchManualOptimization()
        self._watch.on_train_start(self.lightning_module.trainer, self.lightning_module)
        self.positions.restart()
        if self.world_size > 1:
            name = self.broadcast(uuid.uuid4().hex)
            ranks = self.global_rank, self.world_size
            self._position_watch = PositionWatch(default_store(), *ranks, self.positions, name)
        super().on_train_start()

    def on_train_end(self) -> None:
        self.positions.note("the end of the training")
        if self._position_watch is not None:
            self._position_watch.finish(self.barrier)
        if self._watch is not None:
            self._watch.on_train_end(self.lightning_module.trainer, self.lightning_module)
        super().on_train_end()

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        if self._position_watch and isinstance(exception, RuntimeError) and not isinstance(exception, RanksDisagree):
            self._position_watch.explain()  # since collectives that do not match may raise an error
        super().on_exception(exception)
        end_children(self.launcher)

    def teardown(self) -> None:
        if self._position_watch is not None:
            self._position_watch.stop()
        self._statistics = self._watch = self._position_watch = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        self.networks = {}
        if self._binding is not None:
            self._binding.release()
            self._binding = None
        super().teardown()

    # ---- refusals

    def refuse_penalty(self, network: nn.Module, sentence: str) -> None:
        """Makes gradient penalties on a network raise `RefusedInput` with a message, until the training ends."""
        self._hooks += (refuse_second_differentiation(network, sentence),)

    # ---- a step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.positions.begin(self.lightning_module.trainer.fit_loop.total_batch_idx)
        output = super().training_step(*args, **kwargs)
        self.positions.note("the end")
        self.average_statistics()
        return output

    def average_statistics(self) -> None:
        """Averages the running statistics of norms over the ranks."""
        if self._statistics is None:
            stepped = (parameter for network in self.networks.values() for parameter in network.parameters)
            self._statistics = running_statistics(self.lightning_module, stepped)
        average_over_ranks(self._statistics)

    def optimizer_step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        self.note_step(optimizer)
        return super().optimizer_step(optimizer, *args, **kwargs)

    def note_step(self, optimizer: torch.optim.Optimizer) -> str:
        """Notes a step in this rank's position, and returns the name of its network."""
        name = stepped_network(self.networks, optimizer).name
        self.positions.note(f"the step of {name}")
        return name

    def note_backward(self, *networks: Network) -> None:
        """Notes a backward that averages the gradients of networks over the ranks."""
        self.positions.note(f"the backward of {', '.join(network.name for network in networks)}")

    # ---- memory

    def bytes_held(self) -> dict[str, int]:
        """Returns the bytes of parameters, gradients and optimizer states that this rank currently stores."""
        held = {name: storages(tensors) for name, tensors in self.tensors_held().items()}
        for address in held["parameters"]:
            held["optimizer"].pop(address, None)
        return {name: sum(sizes.values()) for name, sizes in held.items()}

    def tensors_held(self) -> dict[str, list[Tensor]]:
        """Returns this rank's parameters, gradients and optimizer states."""
        parameters = list(self.lightning_module.parameters())
        states = (state for optimizer in self.optimizers for state in optimizer.state.values())
        return {
            "parameters": parameters,
            "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
            "optimizer": [value for state in states for value in state.values() if isinstance(value, Tensor)],
        }
