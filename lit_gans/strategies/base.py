"""Base class of all strategies: setup, process lifetime and what is the same on all ranks."""

from __future__ import annotations

import logging
import os
import uuid
from abc import abstractmethod
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.common._compat.lightning import process_group_backend
from lit_gans.common._compat.torch import default_store
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.grad_scaling import scale_each_network
from lit_gans.strategies.manual_optimization import WatchManualOptimization
from lit_gans.strategies.module_networks import (
    Network,
    find_networks,
    refuse_second_differentiation,
    refuse_unstepped,
    stepped_network,
)
from lit_gans.strategies.process_lifetime import announce_parent, end_children, follow_parent
from lit_gans.strategies.rank_positions import Positions, RanksDisagree
from lit_gans.strategies.rank_tensors import average_over_ranks, broadcast_from_first_rank, running_statistics
from lit_gans.strategies.rendezvous import join_world, limit_waiting, starting_timeout

log = logging.getLogger(__name__)

_LONGEST_TIMEOUT = 1e9  # seconds: what a timedelta and torch's milliseconds hold


class NetworkStrategy(DDPStrategy):
    """Base class of multi-process strategies: Lightning's DDP without its wrapper of the full module.

    A network is what one optimizer steps, see `module_networks`. Everything else in the module, such as a frozen
    teacher or an average, remains as the module has it. A backward names the network that it trains,
    `manual_backward(loss, network=NAME)`, or the others are frozen. A module may have two attributes for the strategy:

    - `penalized_networks`: names of the networks whose gradient is differentiated twice, as gradient penalties do.
    - `clip_gradients_to`: maximum norm of a network's gradient, for strategies that clip themselves.

    No process outlives a failed run. Ranks that train different networks raise an error, see `rank_positions`. The
    timeout applies once all ranks have started. Parameters and buffers are broadcast from rank 0 at the start. Running
    statistics of norms are averaged over the ranks after each training step; other buffers remain local to each rank.

    A subclass overrides `refuse`, `prepare_networks` or Lightning's hooks.
    """

    clips_gradients = False  # whether the strategy clips gradients itself, so that the module must not
    is_sharded = False  # whether parameters are currently sharded, so that no rank has a full network

    _failed = False
    _statistics: list[Tensor] | None = None
    _hooks: tuple[RemovableHandle, ...] = ()
    _watch: WatchManualOptimization | None = None

    def __init__(self, *, timeout: float, **kwargs: Any) -> None:
        if not 0 < timeout <= _LONGEST_TIMEOUT:
            raise RefusedInput(f"timeout={timeout} must be greater than 0 seconds and at most {_LONGEST_TIMEOUT:.0e}.")
        super().__init__(timeout=starting_timeout(timeout), **kwargs)
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
        timeout = starting_timeout(self._waits.total_seconds())
        ranks = environment.global_rank(), environment.world_size()
        join_world(process_group_backend(self), *ranks, self.root_device, timeout)

    def limit_waiting(self) -> None:
        """Sets the timeout of all existing process groups; must be called again after creating new ones."""
        limit_waiting(self._waits)

    @abstractmethod
    def refuse(self, module: LightningModule, precision: str) -> None:
        """Raises `RefusedInput` if this strategy cannot train a module in a precision."""

    def setup(self, trainer: Trainer) -> None:
        self.refuse(self.lightning_module, str(trainer.precision))
        scale_each_network(self)
        broadcast_from_first_rank(self.lightning_module, self.root_device)
        self.prepare_networks(trainer)
        self.lightnings_setup(trainer)

    def prepare_networks(self, trainer: Trainer) -> None:
        """Prepares the networks before they are moved to the device; does nothing by default."""

    def configure_ddp(self) -> None:
        """Does nothing, since the networks are known only from the optimizers."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        self.networks = find_networks(self.optimizers, self.lightning_module)
        refuse_unstepped(self.networks, self.lightning_module)

    def on_train_start(self) -> None:
        self._watch = WatchManualOptimization()
        self._watch.on_train_start(self.lightning_module.trainer, self.lightning_module)
        if self.world_size > 1:
            name = self.broadcast(uuid.uuid4().hex)
            store = default_store().clone()  # its own connection: whoever waits for the store blocks others that use it
            self.positions = Positions(store, self.global_rank, self.world_size, name)
            self.barrier()  # each rank has published its events, so that reading them waits for nobody
        super().on_train_start()

    def on_train_end(self) -> None:
        self.positions.note("the end of the training")
        self.positions.publish()
        self.barrier()
        self.positions.compare()
        self.barrier()  # the store ends with the process that serves it, which must not be before all have read
        if self._watch is not None:
            self._watch.on_train_end(self.lightning_module.trainer, self.lightning_module)
        super().on_train_end()

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        if isinstance(exception, RuntimeError) and not isinstance(exception, RanksDisagree):
            try:  # collectives that do not match may raise an error
                self.positions.compare()
            except RanksDisagree as disagreement:
                log.error(disagreement)
            except RuntimeError:  # the store has ended with the process that serves it
                log.debug("No store any more: positions are not compared.", exc_info=True)
        super().on_exception(exception)
        end_children(self.launcher)

    def teardown(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._statistics, self._watch, self.networks = (), None, None, {}
        self.positions = Positions()
        self.lightnings_teardown()

    def lightnings_setup(self, trainer: Trainer) -> None:
        """Runs Lightning's setup, which moves the module to the device and connects the optimizers."""
        super().setup(trainer)

    def lightnings_teardown(self) -> None:
        """Runs Lightning's teardown, which moves the module to the CPU."""
        super().teardown()

    # ---- refusals

    def refuse_penalty(self, network: nn.Module, sentence: str) -> None:
        """Makes gradient penalties on a network raise `RefusedInput` with a message, until the training ends."""
        self._hooks += (refuse_second_differentiation(network, sentence),)

    # ---- a step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.positions.begin(self.lightning_module.trainer.fit_loop.total_batch_idx)
        output = super().training_step(*args, **kwargs)
        self.positions.end()
        self.average_statistics()
        return output

    def average_statistics(self) -> None:
        """Averages the running statistics of norms over the ranks."""
        if self._statistics is None:
            stepped = (parameter for network in self.networks.values() for parameter in network.parameters)
            self._statistics = running_statistics(self.lightning_module, stepped)
        average_over_ranks(self._statistics)

    def optimizer_step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        self.positions.note(f"the step of {stepped_network(self.networks, optimizer).name}")
        return super().optimizer_step(optimizer, *args, **kwargs)

    def reach_backward(self, *networks: Network) -> None:
        """Notes a backward that averages the gradients of networks over the ranks."""
        self.positions.reach(f"the backward of {', '.join(network.name for network in networks)}")

    def reach_forward(self, path: str) -> None:
        """Notes a forward of a network that gathers its weights from all ranks."""
        self.positions.reach(f"the forward of {path}")

    # ---- shards of parameters, of strategies that shard them

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter."""
        raise NotImplementedError

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor of a parameter's shape."""
        raise NotImplementedError

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Gathers the full tensor from all ranks' shards; every rank must call it."""
        raise NotImplementedError

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns a network's full tensors on the CPU; every rank must call it."""
        raise NotImplementedError
