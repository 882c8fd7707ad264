"""Base class of all strategies: setup and end, what is the same on all ranks, and what a module asks of a strategy.

Lightning's own strategies can train the modules of this package: the functions at the end have answers for them. The
docstring of `NetworkStrategy` says what a strategy asks of a module.

The hooks in their order: what Lightning or torch calls, what runs here, and the state of the gradients of the network
that a line concerns afterwards (see `gradients`).

    Lightning, torch             here                                                        gradients
    ---------------------------  ----------------------------------------------------------  -------------
    setup_environment            join_world, limit_waiting, follow_parent
    setup                        refuse, scale_each_network, broadcast_from_first_rank
      lightnings_setup           FSDP shards first
        setup_optimizers         find_networks, hooks of each step, replicas or engines      none
      Gradients.watch            hook on each parameter
    on_train_start               Positions
    training_step                positions.begin
      manual_backward
        backward                 backward_of: positions.reach                                none, while it runs
          (autograd)             hook on each parameter, reduction                           local
                                 end of backward_of                                          averaged
          in block_backward_sync                                                             local
      loss.backward()            hook on each parameter                                      local
      optimizer.step             optimizer_step
        (closure)                backward
                                 before_step: raises unless all gradients are averaged
        step pre-hook            _begin_step: positions.note, before_step
        (step)
        step post-hook           _end_step                                                   none
      optimizer.zero_grad        (gradients are None or 0, which before_step sees)
    (end of training_step)       positions.end, average_statistics
    on_train_end                 positions.compare
    on_exception                 positions.compare, end_children
    teardown                     hooks removed; lightnings_teardown
"""

from __future__ import annotations

import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.checkpoints.sharded import write_sharded
from lit_gans.common._compat.lightning import batch_index, process_group_backend, use_by_default
from lit_gans.common._compat.torch import NormBase, copy_all, default_store
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import (
    DDPStrategy,
    LightningModule,
    ParallelStrategy,
    Strategy,
    Trainer,
    rank_zero_warn,
)
from lit_gans.strategies.grad_scaling import NetworkScaling, scale_each_network
from lit_gans.strategies.gradients import (
    ASSIGNED,
    AVERAGED,
    BLOCKED,
    NONE,
    Gradients,
    running_backward,
    sums,
    which_differ,
)
from lit_gans.strategies.manual_optimization import WatchManualOptimization, refuse_automatic_arguments
from lit_gans.strategies.module_networks import (
    OptimizedNetwork,
    find_networks,
    parameters_of,
    refuse_unstepped,
    stepped_network,
)
from lit_gans.strategies.processes import (
    announce_parent,
    end_children,
    follow_parent,
    join_world,
    limit_waiting,
    starting_timeout,
)
from lit_gans.strategies.rank_positions import Positions, RanksDisagree

log = logging.getLogger(__name__)


class NetworkStrategy(DDPStrategy):
    """Base class of multi-process strategies: Lightning's DDP without its wrapper of the full module.

    A network is what one optimizer steps, see `module_networks`. Everything else in the module, such as a frozen
    teacher, remains as the module has it. `manual_backward` trains the networks that require gradients and that its
    loss reaches, or the one that it names, `manual_backward(loss, network=NAME)`. A module may have attributes for the
    strategy:

    - `penalized_networks`: names of the networks whose gradient is differentiated twice, as gradient penalties do.
    - `clip_gradients_to`: maximum norm of a network's gradient, for strategies that clip themselves.
    - `instead_of_trainer`: see `manual_optimization.refuse_automatic_arguments`.

    No process outlives a failed run. Ranks that train different networks raise an error, see `rank_positions`. The
    timeout applies once all ranks have started. Parameters and buffers are broadcast from rank 0 at the start. Running
    statistics of norms are averaged over the ranks after each training step; other buffers remain local to each rank.

    A subclass overrides `refuse`, Lightning's hooks, and if it shards, `shard`, `unshard`, `local_shard` and
    `full_state_dict`.
    """

    clips_gradients = False  # whether the strategy clips gradients itself, so that the module must not
    is_sharded = False  # whether parameters are currently sharded, so that no rank has a full network
    sharded_checkpoints = False  # whether a checkpoint is a folder, into which each rank writes its shards

    refused_optimizers: frozenset[str] = frozenset()  # names of the classes that cannot step what a strategy shards

    _failed = False
    _statistics: list[Tensor] | None = None
    _hooks: tuple[RemovableHandle, ...] = ()
    _watch: WatchManualOptimization | None = None

    def __init__(self, *, timeout: float, **kwargs: Any) -> None:
        self._waits = timedelta(seconds=timeout)
        super().__init__(timeout=starting_timeout(self._waits), **kwargs)
        self.networks: dict[str, OptimizedNetwork] = {}
        self.positions = Positions()
        self.gradients: dict[str, Gradients] = {}
        self.averages = True  # whether a backward averages gradients, as it does outside `block_backward_sync`

    # ---- setup and end

    def connect(self, model: LightningModule) -> None:  # before Lightning checks the Trainer's arguments
        refuse_automatic_arguments(model, model.trainer)
        super().connect(model)

    def set_world_ranks(self) -> None:  # which Lightning calls before it starts further processes
        super().set_world_ranks()
        if self.cluster_environment is not None and not self.cluster_environment.creates_processes_externally:
            announce_parent()

    def setup_environment(self) -> None:
        use_by_default(self, CheckpointFiles())
        if self.root_device.type != "cpu":
            self.accelerator.setup_device(self.root_device)
        ranks = self.cluster_environment.global_rank(), self.cluster_environment.world_size()
        join_world(process_group_backend(self), *ranks, self.root_device, starting_timeout(self._waits))
        super().setup_environment()
        self.barrier()
        self.limit_waiting()
        follow_parent()

    def limit_waiting(self) -> None:
        """Sets the timeout of all existing process groups; must be called again after creating new ones."""
        limit_waiting(self._waits)

    @abstractmethod
    def refuse(self, module: LightningModule, precision: str) -> None:
        """Raises `RefusedInput` if this strategy cannot train a module in a precision."""

    def setup(self, trainer: Trainer) -> None:
        self.refuse(self.lightning_module, str(trainer.precision))
        if self.sharded_checkpoints:
            import safetensors  # noqa: F401  (without it, the first checkpoint would fail)
        scale_each_network(self)
        broadcast_from_first_rank(self.lightning_module, self.root_device)
        self.lightnings_setup(trainer)
        for name, network in self.networks.items():
            self._hooks += self.gradients[name].watch(self.averaged_by_us(network))

    def configure_ddp(self) -> None:
        """Does nothing, since the networks are known only from the optimizers."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        self.networks = find_networks(self.optimizers, self.lightning_module)
        refuse_unstepped(self.networks, self.lightning_module)
        for name, network in self.networks.items():
            if isinstance(network.optimizer, torch.optim.LBFGS):
                raise RefusedInput(
                    f"LBFGS steps {name} as the loss of each process' own batch tells it, so that the processes would"
                    " step apart: use another optimizer."
                )
            if type(network.optimizer).__name__ in self.refused_optimizers:
                raise RefusedInput(
                    f"{type(network.optimizer).__name__} computes with the matrices of {name}, of which"
                    f" {type(self).__name__} has shards: use an optimizer that computes with each element, such as"
                    " Adam, or NetworkDDP."
                )
            self.gradients[name] = Gradients(name)
            self._hooks += (
                network.optimizer.register_step_pre_hook(partial(self._begin_step, name)),
                network.optimizer.register_step_post_hook(partial(self._end_step, name)),
            )

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
        self.gradients = {}
        self.lightnings_teardown()

    def lightnings_setup(self, trainer: Trainer) -> None:
        """Runs Lightning's setup, which moves the module to the device and connects the optimizers."""
        super().setup(trainer)

    def lightnings_teardown(self) -> None:
        """Runs Lightning's teardown, which moves the module to the CPU."""
        super().teardown()

    # ---- a step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.positions.begin(batch_index(self.lightning_module.trainer))
        output = super().training_step(*args, **kwargs)
        self.positions.end()
        first = self._statistics is None
        self.average_statistics()
        if first:
            self._warn_of_buffers()
        return output

    def average_statistics(self) -> None:
        """Averages the running statistics of norms over the ranks."""
        if self._statistics is None:
            stepped = (parameter for network in self.networks.values() for parameter in network.parameters)
            self._statistics = running_statistics(self.lightning_module, stepped)
        average_over_ranks(self._statistics)

    def _warn_of_buffers(self) -> None:
        """Warns if the ranks have other buffers after their first step, as of a codebook that moves with the batch."""
        averaged = {id(buffer) for buffer in self._statistics or ()}
        buffers = {
            name: buffer
            for name, buffer in self.lightning_module.named_buffers()
            if buffer.is_floating_point() and id(buffer) not in averaged
        }
        if not buffers:
            return
        differ = self._which_differ([*buffers.values()])
        if names := [name for name, differs in zip(buffers, differ, strict=True) if differs]:
            rank_zero_warn(
                f"the processes have other values of the buffer {names[0]} after the first iteration, and compute with"
                " their own: let the module average what it adds to it, by self.trainer.strategy.reduce(value,"
                ' reduce_op="mean").'
            )

    @contextmanager
    def backward_of(self, trained: list[OptimizedNetwork]) -> Iterator[None]:
        """Context manager for a backward pass that trains networks.

        It averages the gradients of those that it reaches over the ranks, unless inside `block_backward_sync`.
        """
        names = [network.name for network in trained]
        if self.averages:
            self.positions.reach(f"the backward of {', '.join(names)}")
        with running_backward(self.gradients, names, AVERAGED if self.averages else BLOCKED):
            yield

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulates gradients on each rank; the next backward outside the context averages their sum."""
        before = self.averages
        self.set_averaging(False)
        try:
            yield
        finally:
            self.set_averaging(before)

    def set_averaging(self, averages: bool) -> None:
        """Sets whether the next backward averages gradients; a subclass tells whatever averages them."""
        self.averages = averages

    def averaged_by_us(self, network: OptimizedNetwork) -> list[nn.Parameter]:
        """Returns the parameters of a network whose gradients nothing averages but `backward`."""
        return network.parameters

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        then = self._with_check(stepped_network(self.networks, optimizer), closure)
        return super().optimizer_step(optimizer, then, *args, **kwargs)

    def _with_check(self, network: OptimizedNetwork, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Returns a closure that also checks the gradients which it may have computed."""

        def checked() -> Any:
            result = closure()
            self.before_step(network)
            return result

        return checked

    def _begin_step(self, name: str, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hook that runs before every step of an optimizer, whoever calls `optimizer.step()`."""
        network = self.networks[name]
        rates = dict.fromkeys(group.get("lr") for group in network.optimizer.param_groups)
        shown = ", ".join(repr(rate) for rate in rates if isinstance(rate, float))  # a tensor would wait for the device
        self.positions.note(f"the step of {name} with learning rate {shown}")
        optimizer, closure, *rest = *args, None
        if closure is not None:  # which computes the gradients
            return (optimizer, self._with_check(network, closure), *rest[:-1]), kwargs
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": self._with_check(network, kwargs["closure"])}
        return self.before_step(network)

    def _end_step(self, name: str, *_: Any) -> None:
        """Hook that runs after every step of an optimizer, whoever calls `optimizer.step()`."""
        self.gradients[name].state = NONE

    def before_step(self, network: OptimizedNetwork) -> None:
        """Runs before a network is stepped, at least once after the last backward.

        Raises:
            RefusedInput: its gradients are those of this rank alone, or its optimizer has got other parameters.
        """
        gradients = self.gradients[network.name]
        if gradients.state is not AVERAGED and self.has_gradients(network):
            gradients.refuse_local()
            self.refuse_assigned(network)
        if len(parameters_of(network.optimizer)) != len(network.parameters):
            raise RefusedInput(
                f"the optimizer of {network.name} got further parameters after the training had begun, whose gradients"
                " would not be averaged: give it all of them in configure_optimizers, and freeze some in"
                " on_train_start."
            )

    def has_gradients(self, network: OptimizedNetwork) -> bool:
        """Returns whether a step would use any gradient that `averaged_by_us` concerns, other than zeros."""
        return any(p.grad is not None and bool(p.grad.any()) for p in self.averaged_by_us(network))

    def refuse_assigned(self, network: OptimizedNetwork) -> None:
        """Raises `RefusedInput` if gradients that no backward has computed differ between the ranks."""
        self.positions.reach(f"the comparison of the gradients of {network.name}, which no backward has computed")
        if any(self._which_differ([parameter.grad for parameter in self.averaged_by_us(network)])):
            self.gradients[network.name].refuse(ASSIGNED)

    def _which_differ(self, tensors: Sequence[Tensor | None]) -> list[bool]:
        """Returns for each tensor whether the ranks have other values of it."""
        if self.world_size == 1:
            return [False] * len(tensors)
        return which_differ(self.all_gather(sums(tensors, self.root_device)))

    def reach_forward(self, path: str) -> None:
        """Notes a forward of a network that gathers its weights from all ranks."""
        self.positions.reach(f"the forward of {path}")

    # ---- checkpoints

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self.sharded_checkpoints:
            write_sharded(checkpoint, filepath, self, _tied(self.lightning_module))
        else:
            super().save_checkpoint(checkpoint, filepath, storage_options)

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

    def free(self, parameter: nn.Parameter) -> None:
        """Frees the full tensor of a parameter whose shard has been changed, if there is one."""

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns a network's full tensors on the CPU; every rank must call it."""
        raise NotImplementedError


def _tied(module: nn.Module) -> dict[str, str]:
    """Returns for each further name of a parameter or buffer its first one."""
    first: dict[int, str] = {}
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name: first[id(tensor)] for name, tensor in named if first.setdefault(id(tensor), name) != name}


# ---- tensors of all ranks


@torch.no_grad()
def broadcast_from_first_rank(module: nn.Module, device: torch.device) -> None:
    """Broadcasts parameters and buffers from rank 0, through a device that the backend supports, but no shards."""
    from torch.distributed.tensor import DTensor

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    full = (tensor for tensor in (*module.parameters(), *module.buffers()) if not isinstance(tensor, DTensor))
    for tensor in (tensor for tensor in full if tensor.numel()):
        sent = tensor.detach().flatten().to(device, copy=True)
        dist.broadcast(sent.view(torch.uint8), 0)
        tensor.copy_(sent.view(tensor.shape))


def running_statistics(module: nn.Module, stepped: Iterable[nn.Parameter]) -> list[Tensor]:
    """Returns the running means and variances of the norms that train: those with parameters that an optimizer steps,
    and those without parameters in training mode.
    """
    ids = {id(parameter) for parameter in stepped}
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, NormBase)
        and layer.track_running_stats
        and (layer.training if layer.weight is None else id(layer.weight) in ids)
    ]
    buffers = (buffer for layer in layers for buffer in (layer.running_mean, layer.running_var))
    return [buffer for buffer in buffers if buffer is not None]


@torch.no_grad()
def average_over_ranks(buffers: list[Tensor]) -> None:
    """Replaces tensors by their means over all ranks, with a single reduction."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size == 1 or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    means = flat.div_(world_size).split([buffer.numel() for buffer in buffers])
    copy_all(buffers, (mean.view_as(buffer) for mean, buffer in zip(means, buffers, strict=True)))


# ---- what a module asks of the strategy that trains it, with the answers for Lightning's own strategies


def backward_arguments(strategy: Strategy, network: str) -> dict[str, str]:
    """Returns the arguments of `manual_backward` that name a network, where something uses them."""
    named = isinstance(strategy, NetworkStrategy) or isinstance(strategy.precision_plugin, NetworkScaling)
    return {"network": network} if named else {}


def clips_gradients(strategy: Strategy) -> bool:
    """Returns whether a strategy clips gradients itself, to the module's `clip_gradients_to`."""
    return isinstance(strategy, NetworkStrategy) and strategy.clips_gradients


def block_backward_sync(strategy: Strategy) -> AbstractContextManager[None]:
    """Returns a context in which backward accumulates gradients on each rank without averaging them."""
    return strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) else nullcontext()


def sharding(strategy: object) -> NetworkStrategy | None:
    """Returns a strategy if it currently shards parameters over the ranks, so that no rank has a full network."""
    return strategy if isinstance(strategy, NetworkStrategy) and strategy.is_sharded else None
