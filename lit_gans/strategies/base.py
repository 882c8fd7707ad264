"""Base class of the strategies, and helper functions with which a module queries the strategy that trains it.

Lightning's own strategies can also train the modules of this package: the helper functions at the end of this file
support them, too. The docstring of `NetworkStrategy` lists the attributes of a module that a strategy reads.

The table lists the hooks in the order of their calls. The first column is the method that Lightning or torch calls, and
the second column is the code that runs here. The third column is the state of a network's gradients afterwards (see
`gradients`); `=` means unchanged. FSDP sets gradients without calling the hooks of parameters. Where the table says
local, FSDP's own hook sets the state to averaged at the end of the pass, except in `block_backward_sync`.

    Lightning, torch             here                                                        gradients
    ---------------------------  ----------------------------------------------------------  -------------------------
    Trainer(...)
      set_world_ranks            announce_parent
    connect                      refuse_automatic_arguments
    setup_environment            join_world, limit_waiting, follow_parent
    setup                        refuse, scale_each_network, broadcast_from_first_rank
      lightnings_setup           FSDP: setup_optimizers, then shards the networks
        setup_optimizers         find_networks, hooks of each step, replicas or engines      none
      (end of setup)             Gradients.watch registers a hook on each parameter (FSDP:
                                 on parameters that it does not shard)                       none
    on_train_start               WatchManualOptimization, Positions                          none
    training_step                positions.begin                                             =
      manual_backward
        backward                 start of backward_of: positions.reach                       none
          (autograd)             hook on each parameter, reduction                           local
                                 end of backward_of                                          averaged
          in block_backward_sync                                                             local
          after an error                                                                     local
          network not reached                                                                as before the backward
      loss.backward()            hook on each parameter                                      local
      optimizer.step             optimizer_step                                              =
        step pre-hook            _begin_step: positions.note, before_step without a closure  =
          (closure)              may run backward passes; then before_step                   averaged, or no gradients
          on_before_optimizer_step                                                           =
                                 before_step again                                           averaged, or no gradients
          (update of weights)                                                                =
        step post-hook           _end_step                                                   none
      optimizer.zero_grad        (DeepSpeed sets the state to none)                          =
    (end of training_step)       positions.end, average_statistics                           =
    on_train_end                 positions.compare                                           =
    on_exception                 positions.compare, end_children                             =
    teardown                     removes the hooks; lightnings_teardown

`before_step` raises an error if local gradients are not zero. In the state none, nonzero gradients must have been
assigned by the module; `before_step` compares them between the ranks. In fp16, `NetworkScaling` runs the closure and
unscales the gradients before the pre-hook, which then sees no closure. A backward pass that trains one network by name
does not reach the other networks: DDP and DeepSpeed do not compute their gradients, and FSDP restores them.
"""

from __future__ import annotations

import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
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
    MixedPrecision,
    ParallelStrategy,
    Precision,
    Strategy,
    Trainer,
    rank_zero_warn,
)
from lit_gans.common.rank_zero import rank_and_world_size
from lit_gans.strategies.grad_scaling import NetworkScaling, scale_each_network
from lit_gans.strategies.gradients import (
    ASSIGNED,
    AVERAGED,
    BLOCKED,
    NONE,
    Gradients,
    norms,
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
    """Base class of multi-process strategies: Lightning's `DDPStrategy` without the DDP wrapper around the full module.

    A network consists of the parameters that one optimizer steps, see `module_networks`. The strategy does not change
    any other part of the module, such as a frozen teacher. `manual_backward(loss)` trains all networks that require
    gradients and that the loss depends on. `manual_backward(loss, network=NAME)` trains only the network with that
    name. A module can define the following attributes, which the strategy reads:

    - `penalized_networks`: names of the networks whose gradients are differentiated twice, as gradient penalties do.
    - `instead_of_trainer`: see `manual_optimization.refuse_automatic_arguments`.

    If one process fails, all processes of the run end. If ranks train different networks, an error is raised, see
    `rank_positions`. The timeout applies once all ranks have started. Parameters and buffers are broadcast from rank 0
    at the start. Running statistics of normalization layers are averaged over the ranks after each training step. All
    other buffers remain local to each rank.

    A subclass overrides `refuse` and Lightning's hooks. If it shards parameters, it also overrides `shard`, `unshard`,
    `local_shard` and `full_state_dict`.
    """

    is_sharded = False  # whether parameters are currently sharded; if so, no rank holds a full network
    sharded_checkpoints = False  # whether a checkpoint is a folder into which each rank writes its shards

    refused_optimizers: frozenset[str] = frozenset()  # class names of optimizers that cannot step sharded parameters

    _failed = False
    _norms: list[NormBase] | None = None  # normalization layers whose statistics may be averaged
    _hooks: tuple[RemovableHandle, ...] = ()
    _watch: WatchManualOptimization | None = None

    def __init__(self, *, timeout: float, **kwargs: Any) -> None:
        self._waits = timedelta(seconds=timeout)
        super().__init__(timeout=starting_timeout(self._waits), **kwargs)
        self.networks: dict[str, OptimizedNetwork] = {}
        self.positions = Positions()
        self.gradients: dict[str, Gradients] = {}
        self.averages = True  # whether backward averages gradients; False inside `block_backward_sync`

    # ---- setup and end

    def connect(self, model: LightningModule) -> None:
        # Lightning calls `connect` before it checks the Trainer's arguments, so this check comes first.
        refuse_automatic_arguments(model, model.trainer)
        super().connect(model)

    def set_world_ranks(self) -> None:
        # Lightning calls this method before it starts further processes, which inherit the environment variable.
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
        """Sets the timeout of all existing process groups. Must be called again after new groups are created."""
        limit_waiting(self._waits)

    @abstractmethod
    def refuse(self, module: LightningModule, precision: str) -> None:
        """Raises `RefusedInput` if this strategy cannot train the module in the given precision."""

    def setup(self, trainer: Trainer) -> None:
        self.refuse(self.lightning_module, str(trainer.precision))
        if self.sharded_checkpoints:
            import safetensors  # noqa: F401  (if it is missing, fail now rather than at the first checkpoint)
        scale_each_network(self)
        broadcast_from_first_rank(self.lightning_module, self.root_device)
        self.lightnings_setup(trainer)
        for name, network in self.networks.items():
            self._hooks += self.gradients[name].watch(self.averaged_by_us(network))

    def configure_ddp(self) -> None:
        """Does nothing, because the networks are known only after the optimizers have been created."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        self.networks = find_networks(self.optimizers, self.lightning_module)
        refuse_unstepped(self.networks, self.lightning_module)
        for name, network in self.networks.items():
            if isinstance(network.optimizer, torch.optim.LBFGS):
                raise RefusedInput(
                    f"LBFGS steps {name} according to the loss of each process' local batch, so that the weights of the"
                    " processes would diverge: use another optimizer."
                )
            names = {cls.__name__.lower() for cls in type(network.optimizer).__mro__}
            if not names.isdisjoint(map(str.lower, self.refused_optimizers)):
                raise RefusedInput(
                    f"{type(network.optimizer).__name__} needs the full weight matrices of {name}, but"
                    f" {type(self).__name__} shards them: use an elementwise optimizer, such as Adam, or NetworkDDP."
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
            store = (
                default_store().clone()
            )  # use a separate connection, because a blocking read would block all other users of the same connection
            self.positions = Positions(store, self.global_rank, self.world_size, name)
            self.barrier()  # wait until each rank has published its events, so that reading them never blocks
        super().on_train_start()

    def on_train_end(self) -> None:
        self.positions.note("the end of the training")
        self.positions.publish()
        self.barrier()
        self.positions.compare()
        self.barrier()  # the process that serves the store must not exit before all ranks have read from it
        if self._watch is not None:
            self._watch.on_train_end(self.lightning_module.trainer, self.lightning_module)
        for name, gradients in self.gradients.items():
            if gradients.had_any is False:
                rank_zero_warn(
                    f"the optimizer of {name} stepped without a gradient in every step, so that it trained nothing:"
                    " call zero_grad(), then self.manual_backward(loss), then step()."
                )
        super().on_train_end()

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        if isinstance(exception, RuntimeError) and not isinstance(exception, RanksDisagree):
            try:  # mismatched collectives might have caused the error
                self.positions.compare()
            except RanksDisagree as disagreement:
                log.error(disagreement)
            except RuntimeError:  # the process that serves the store has exited
                log.debug("The store is no longer available: positions are not compared.", exc_info=True)
        super().on_exception(exception)
        end_children(self.launcher)

    def teardown(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._norms, self._watch, self.networks = (), None, None, {}
        self.positions = Positions()
        self.gradients = {}
        self.lightnings_teardown()

    def lightnings_setup(self, trainer: Trainer) -> None:
        """Runs Lightning's setup, which moves the module to the device and sets up the optimizers."""
        super().setup(trainer)

    def lightnings_teardown(self) -> None:
        """Runs Lightning's teardown, which moves the module to the CPU."""
        super().teardown()

    # ---- a step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self.positions.begin(batch_index(self.lightning_module.trainer))
        output = super().training_step(*args, **kwargs)
        self.positions.end()
        first = self._norms is None
        self.average_statistics()
        if first:
            self._warn_if_buffers_differ()
            self._refuse_different_weights()
        return output

    def average_statistics(self) -> None:
        """Averages the running statistics of normalization layers over the ranks."""
        if self._norms is None:
            trained = (parameter for network in self.networks.values() for parameter in network.parameters)
            self._norms = trained_norms(self.lightning_module, trained)
        average_over_ranks(running_statistics(self._norms))

    def _warn_if_buffers_differ(self) -> None:
        """Warns if a buffer differs between the ranks after the first step.

        An example is a codebook that each rank updates with its local batch.
        """
        averaged = {id(buffer) for buffer in running_statistics(self._norms or ())}
        buffers = {
            name: buffer
            for name, buffer in self.lightning_module.named_buffers()
            if buffer.is_floating_point() and id(buffer) not in averaged
        }
        if not buffers:
            return
        differ = self._which_differ(sums(buffers.values(), self.root_device))
        if names := [name for name, differs in zip(buffers, differ, strict=True) if differs]:
            rank_zero_warn(
                f"the buffer {names[0]} differs between the processes after the first iteration, and each process"
                " computes with its local values: average each update of the buffer in the module, with"
                ' self.trainer.strategy.reduce(value, reduce_op="mean").'
            )

    def _refuse_different_weights(self) -> None:
        """Raises `RefusedInput` if the weights of a network differ between the ranks after the first step.

        An example is a layer that each rank initializes randomly in `on_train_start`. Shards are not compared.
        """
        stepped = {id(parameter) for network in self.networks.values() for parameter in network.parameters}
        named = {name: p for name, p in self.lightning_module.named_parameters() if id(p) in stepped}
        if self.is_sharded:
            return
        differ = self._which_differ(norms([*named.values()], self.root_device))
        if names := [name for name, differs in zip(named, differ, strict=True) if differs]:
            raise RefusedInput(
                f"the weights {names[0]} differ between the processes after the first iteration: change weights before"
                " the training, as in __init__, or on process 0 and broadcast them."
            )

    @contextmanager
    def backward_of(
        self, trained: list[OptimizedNetwork], reached: list[OptimizedNetwork] | None = None
    ) -> Iterator[None]:
        """Context manager for a backward pass that trains the given networks.

        For each network that it reaches, the pass averages the gradients over all ranks. Inside `block_backward_sync`,
        gradients are not averaged.

        Args:
            trained: networks that the pass may train.
            reached: networks that the pass reaches, which must be the same on all ranks; `None` for all of `trained`.
        """
        names = [network.name for network in trained]
        if self.averages:
            compared = names if reached is None else [network.name for network in reached]
            self.positions.reach(f"the backward of {', '.join(compared)}")
        with running_backward(self.gradients, names, AVERAGED if self.averages else BLOCKED):
            yield

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Context manager in which each rank accumulates gradients locally.

        The next backward pass outside the context averages the accumulated gradients over the ranks.
        """
        before = self.averages
        self.set_averaging(False)
        try:
            yield
        finally:
            self.set_averaging(before)

    def set_averaging(self, averages: bool) -> None:
        """Sets whether the next backward pass averages gradients. Subclasses also configure their wrappers."""
        self.averages = averages

    def averaged_by_us(self, network: OptimizedNetwork) -> list[nn.Parameter]:
        """Returns the network's parameters that have local gradients until `backward` averages these gradients."""
        return network.parameters

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        checked_closure = self._with_check(stepped_network(self.networks, optimizer), closure)
        return super().optimizer_step(optimizer, checked_closure, *args, **kwargs)

    def _with_check(self, network: OptimizedNetwork, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Returns a closure that runs the given closure and then checks the gradients."""

        def checked() -> Any:
            result = closure()
            self.before_step(network)
            return result

        return checked

    def _begin_step(self, name: str, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hook that runs before every optimizer step, whoever calls `optimizer.step()`."""
        network = self.networks[name]
        rates = dict.fromkeys(group.get("lr") for group in network.optimizer.param_groups)
        # printing a tensor would synchronize with the device
        shown = ", ".join(repr(rate) for rate in rates if isinstance(rate, float))
        self.positions.note(f"the step of {name} with learning rate {shown}")
        optimizer, closure, *rest = *args, None
        if closure is not None:  # the closure computes the gradients, so check them after it
            return (optimizer, self._with_check(network, closure), *rest[:-1]), kwargs
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": self._with_check(network, kwargs["closure"])}
        return self.before_step(network)

    def _end_step(self, name: str, *_: Any) -> None:
        """Hook that runs after every optimizer step, whoever calls `optimizer.step()`."""
        self.gradients[name].state = NONE
        self.gradients[name].note_step(self.had_gradient(self.networks[name]))

    def had_gradient(self, network: OptimizedNetwork) -> bool:
        """Returns whether the step that has just ended had a gradient of any parameter."""
        return any(parameter.grad is not None for parameter in network.parameters)

    def before_step(self, network: OptimizedNetwork) -> None:
        """Checks a network before its optimizer step.

        This method can run several times, the last time after all backward passes.

        Raises:
            RefusedInput: the gradients are not averaged over the ranks, or the number of the optimizer's parameters has
                changed.
        """
        gradients = self.gradients[network.name]
        if gradients.state is not AVERAGED and self.has_gradients(network):
            gradients.refuse_local()
            self.refuse_assigned(network)
        if len(parameters_of(network.optimizer)) != len(network.parameters):
            raise RefusedInput(
                f"the optimizer of {network.name} received further parameters after the training had begun, and their"
                " gradients would not be averaged: pass all parameters in configure_optimizers, and freeze some of them"
                " in on_train_start, under DDP with NetworkDDP(find_unused_parameters=True)."
            )

    def has_gradients(self, network: OptimizedNetwork) -> bool:
        """Returns whether any parameter in `averaged_by_us` has a nonzero gradient."""
        return any(p.grad is not None and bool(p.grad.any()) for p in self.averaged_by_us(network))

    def refuse_assigned(self, network: OptimizedNetwork) -> None:
        """Raises `RefusedInput` if gradients that were not computed by a backward pass differ between the ranks."""
        self.positions.reach(f"the comparison of the gradients of {network.name}, which no backward has computed")
        gradients = [parameter.grad for parameter in self.averaged_by_us(network)]
        if any(self._which_differ(sums(gradients, self.root_device))):
            self.gradients[network.name].refuse(ASSIGNED)

    def _which_differ(self, summaries: Tensor) -> list[bool]:
        """Returns for each tensor, given by its `sums` or `norms`, whether it differs between the ranks."""
        if self.world_size == 1:
            return [False] * len(summaries)
        of_ranks = [torch.empty_like(summaries) for _ in range(self.world_size)]
        dist.all_gather(of_ranks, summaries)
        return which_differ(torch.stack(of_ranks))

    def reach_forward(self, path: str) -> None:
        """Records a forward pass in which a network gathers its weights from all ranks."""
        self.positions.reach(f"the forward of {path}")

    # ---- checkpoints

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self.sharded_checkpoints:
            write_sharded(checkpoint, filepath, self, _tied(self.lightning_module))
        else:
            super().save_checkpoint(checkpoint, filepath, storage_options)

    # ---- shards of parameters, for strategies that shard parameters

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter."""
        raise NotImplementedError

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor that has the parameter's shape."""
        raise NotImplementedError

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Gathers the full tensor from the shards of all ranks. Every rank must call this method."""
        raise NotImplementedError

    def free(self, parameter: nn.Parameter) -> None:
        """Frees a parameter's full tensor, if it is gathered, after the shard has changed."""

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the network's state dict with full tensors on the CPU. Every rank must call this method."""
        raise NotImplementedError


def replace_precision_plugin(strategy: Strategy, float32: type[Precision], autocast: type[MixedPrecision]) -> None:
    """Replaces Lightning's plugin for float32, or for autocast without a scaler. A plugin of the user is kept."""
    plugin = strategy.precision_plugin
    if type(plugin) is Precision:
        strategy.precision_plugin = float32()
    elif type(plugin) is MixedPrecision and plugin.scaler is None:
        strategy.precision_plugin = autocast(plugin.precision, plugin.device)


def _tied(module: nn.Module) -> dict[str, str]:
    """Maps each further name of a tied parameter or buffer to its first name."""
    first: dict[int, str] = {}
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name: first[id(tensor)] for name, tensor in named if first.setdefault(id(tensor), name) != name}


# ---- collectives over all ranks


@torch.no_grad()
def broadcast_from_first_rank(module: nn.Module, device: torch.device) -> None:
    """Broadcasts parameters and buffers from rank 0, via a device that the backend supports. DTensors are skipped."""
    from torch.distributed.tensor import DTensor

    if rank_and_world_size()[1] == 1:
        return
    full = (tensor for tensor in (*module.parameters(), *module.buffers()) if not isinstance(tensor, DTensor))
    for tensor in (tensor for tensor in full if tensor.numel()):
        sent = tensor.detach().flatten().to(device, copy=True)
        dist.broadcast(sent.view(torch.uint8), 0)
        tensor.copy_(sent.view(tensor.shape))


def trained_norms(module: nn.Module, stepped: Iterable[nn.Parameter]) -> list[NormBase]:
    """Returns the normalization layers with running statistics whose weight an optimizer steps, or that have none."""
    ids = {id(parameter) for parameter in stepped}
    layers = (layer for layer in module.modules() if isinstance(layer, NormBase) and layer.track_running_stats)
    return [layer for layer in layers if layer.weight is None or id(layer.weight) in ids]


def running_statistics(layers: Iterable[NormBase]) -> list[Tensor]:
    """Returns the running means and variances of normalization layers.

    Layers that have no weight and are in evaluation mode are left out.
    """
    trained = (layer for layer in layers if layer.weight is not None or layer.training)
    buffers = (buffer for layer in trained for buffer in (layer.running_mean, layer.running_var))
    return [buffer for buffer in buffers if buffer is not None]


@torch.no_grad()
def average_over_ranks(buffers: list[Tensor]) -> None:
    """Replaces each tensor by its mean over all ranks, using a single all-reduce for all tensors."""
    world_size = rank_and_world_size()[1]
    if world_size == 1 or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    means = flat.div_(world_size).split([buffer.numel() for buffer in buffers])
    copy_all(buffers, (mean.view_as(buffer) for mean, buffer in zip(means, buffers, strict=True)))


# ---- functions with which a module queries its strategy; they also support Lightning's own strategies


def backward_arguments(strategy: Strategy, network: str) -> dict[str, str]:
    """Returns the argument `network` for `manual_backward`, or nothing if the strategy does not accept it."""
    named = isinstance(strategy, NetworkStrategy) or isinstance(strategy.precision_plugin, NetworkScaling)
    return {"network": network} if named else {}


def block_backward_sync(strategy: Strategy) -> AbstractContextManager[None]:
    """Returns a context manager in which a backward pass accumulates gradients without averaging them over ranks."""
    return strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) else nullcontext()


def sharding(strategy: object) -> NetworkStrategy | None:
    """Returns the strategy if it currently shards parameters over the ranks, and None otherwise."""
    return strategy if isinstance(strategy, NetworkStrategy) and strategy.is_sharded else None
