"""Strategy that shards the parameters, gradients and optimizer states of each network over the ranks with FSDP2."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils.parametrize import ParametrizationList, type_before_parametrizations
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.hooks import RemovableHandle

from lit_gans.checkpoints.remote import downloaded_to_node, is_address
from lit_gans.checkpoints.sharded import merge_tensors, read_index, read_into, read_rest, verify_shards
from lit_gans.common._compat.lightning import synchronizes_batch_norm
from lit_gans.common._compat.torch import (
    at_end_of_backward,
    begin_backward,
    begin_forward,
    end_forward,
    is_computing,
    tree_leaves,
)
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import LightningModule, MixedPrecision, Precision, Trainer, TrainerFn
from lit_gans.strategies.base import NetworkStrategy, average_over_ranks, replace_precision_plugin
from lit_gans.strategies.gradients import AVERAGED, BLOCKED, INTERRUPTED, NONE, Gradients
from lit_gans.strategies.module_networks import (
    OptimizedNetwork,
    find_networks,
    largest_modules,
    make_contiguous,
    network_named,
    parameters_of,
    penalized_networks,
    refusing_penalties,
    tensors_in,
)

_SHARDS = (
    "Under NetworkFSDP, the parameters of a network are shards, except while one of its modules is called: call a"
    " module of the network, register a method with torch.distributed.fsdp.register_fsdp_forward_method in"
    " on_train_start, or gather a parameter with parameter.full_tensor(). Copy a network in __init__. To average a"
    " network, use NetworkAverage."
)
# layers that use the parameters of their child layers without calling the child layers' forward
_WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
REDUCES_FROZEN_ALIKE = torch.__version__ >= "2.14.1"  # a TorchVersion, which compares as a version, not as a string


class NetworkFSDP(NetworkStrategy):
    """Applies FSDP2 to each network of a module with several networks and manual optimization.

    A network's parameters are unsharded only while the network computes. A network with a gradient penalty stays
    unsharded from its forward pass until the optimizer step. The module must list such a network in
    `penalized_networks`, and compute the penalty before the network's other outputs.

    The strategy gathers a network's parameters in the network's `forward`, and in the `forward` of any submodule that
    is called directly. A method such as `self.generator.sample(z)` can call many submodules, each of which gathers
    the parameters. To gather them only once, register the method in `on_train_start`:
    `torch.distributed.fsdp.register_fsdp_forward_method(self.generator, "sample")`. A method that uses parameters
    directly must always be registered. Frozen copies of a network, such as EMA and target networks, are sharded
    as well.

    Running statistics of batch norm are averaged over the ranks after each training step. Checkpoints are single files
    with full tensors under their original names, including optimizer states. They can be loaded on a single CPU, and
    resumed under any strategy and with any number of ranks.

    Args:
        wrap: `network` unshards a full network at once; `layer` unshards one layer at a time. Networks in
            `penalized_networks` are always unsharded at once, and stay unsharded until their step.
        hybrid: whether to shard within a node and replicate across nodes.
        reshard_after_forward: whether a unit frees its full weights between forward and backward; `False` uses more
            memory, but less communication.
        param_dtype: precision of the weights in forward and backward passes. The optimizer steps shards in float32.
        reduce_dtype: precision in which gradients are averaged over the ranks.
        sharded_checkpoints: whether each rank writes its shards with torch.distributed.checkpoint. A checkpoint is then
            a folder, used like a file.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: backend of torch.distributed; null uses nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a setting is invalid.
    """

    is_sharded = True  # no rank holds a full network, so all ranks must take part in sampling
    refused_optimizers = frozenset({"Adafactor"})  # uses operations that DTensor does not support

    @converts_arguments
    def __init__(
        self,
        *,
        wrap: Literal["network", "layer"] = "network",
        hybrid: bool = False,
        reshard_after_forward: bool = True,
        param_dtype: Literal["fp32", "bf16"] = "fp32",
        reduce_dtype: Literal["fp32", "bf16"] = "fp32",
        sharded_checkpoints: bool = False,
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        super().__init__(timeout=timeout, process_group_backend=process_group_backend)
        self.wrap, self.hybrid, self.sharded_checkpoints = wrap, hybrid, sharded_checkpoints
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.reshard_after_forward = reshard_after_forward
        self._roots: dict[str, FSDPModule] = {}
        self._copies: dict[str, FSDPModule] = {}
        self._penalized: dict[str, nn.Module] = {}
        self._units: list[FSDPModule] = []  # all sharded modules, including layers with wrap="layer"
        self._searched: set[str] = set()  # networks that have been checked for reentrant checkpointing

    # ---- setup and end

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            reason = "ranks could skip different steps in fp16" if precision == "16-mixed" else "shards are in float32"
            raise RefusedInput(
                f'Trainer(precision="{precision}") does not work with NetworkFSDP, because its {reason}: use "32-true"'
                ' or "bf16-mixed", or NetworkDDP.'
            )
        if synchronizes_batch_norm(self):
            raise RefusedInput(
                "Trainer(sync_batchnorm=True) has no effect with NetworkFSDP: use NetworkDDP, or leave it out."
            )
        if self.param_dtype != "fp32" and penalized_networks(module):
            raise RefusedInput(
                f'param_dtype="{self.param_dtype}" does not work with a gradient penalty, which must be computed in'
                ' float32: leave param_dtype out, and use Trainer(precision="bf16-mixed"), which computes penalties in'
                " float32."
            )

    def setup(self, trainer: Trainer) -> None:
        replace_precision_plugin(self, _ShardPrecision, _ShardMixedPrecision)
        super().setup(trainer)

    def _wrap(self, trainer: Trainer) -> None:
        module = self.lightning_module
        self._searched.clear()
        mesh = self._mesh()
        self.limit_waiting()
        fits = trainer.state.fn == TrainerFn.FITTING
        _reshard(module)  # an earlier run of this module might have left full weights
        sharded_before = outermost_sharded(module)
        if fits:
            # The optimizers must exist before sharding, because they determine which parameters form a network.
            self.setup_optimizers(trainer)
            self._roots = {path: root for network in self.networks.values() for path, root in network.roots.items()}
            self._copies = frozen_copies(module, self._roots)
        else:
            owned = {id(p) for p in module.parameters() if p.requires_grad and not isinstance(p, DTensor)}
            self._roots, self._copies = sharded_before | largest_modules(module, owned), {}
        _refuse_sharded_differently(self._roots, sharded_before)
        full = dict(module.named_parameters())
        self._shard(mesh)
        if fits:  # otherwise, the optimizers are those of an earlier fit, which might have trained another module
            sharded = dict(module.named_parameters())
            _exchange_parameters(self.optimizers, {id(parameter): sharded[name] for name, parameter in full.items()})
            self.networks = find_networks(self.optimizers, module)
        self._units = [unit for unit in module.modules() if isinstance(unit, FSDPModule)]
        for path, root in (self._roots | self._copies).items():
            self._watch_calls(path, root)

    def lightnings_setup(self, trainer: Trainer) -> None:
        self._wrap(trainer)
        # the steps of Lightning's setup, except for the steps that require full replicas
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        self.setup_precision_plugin()

    def _mesh(self) -> DeviceMesh:
        sizes = (self.num_nodes, self.num_processes) if self.hybrid else (self.world_size,)
        return init_device_mesh(self.root_device.type, sizes, mesh_dim_names=("replicas", "shards")[-len(sizes) :])

    def _shard(self, mesh: DeviceMesh) -> None:
        _refuse_shared(self.lightning_module, self._roots)
        penalized = penalized_networks(self.lightning_module)
        self._penalized = {}
        settings = {"mesh": mesh} | precision_policy(self.param_dtype, self.reduce_dtype)
        for path, root in self._roots.items():
            declared = any(f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.") for name in penalized)
            if declared:
                self._penalized[path] = root
            if isinstance(root, FSDPModule):  # an earlier fit of this module has sharded it
                continue
            make_contiguous(root)
            reshard = self.reshard_after_forward and not declared
            # Double backward requires that a penalized network is one unit, which stays unsharded from its forward pass
            # to its step. With one unit per layer, FSDP would reduce gradients before the penalty's gradients exist.
            if self.wrap == "layer" and not declared:
                _shard_layers(root, reshard_after_forward=reshard, **settings)
            sharded = fully_shard(root, reshard_after_forward=reshard, **settings)
            if declared:
                sharded.set_reshard_after_backward(False, recurse=True)
        for copy in self._copies.values():
            if not isinstance(copy, FSDPModule):
                make_contiguous(copy)
                fully_shard(copy, mesh=mesh, reshard_after_forward=True)

    def _watch_calls(self, path: str, root: FSDPModule) -> None:
        """Registers hooks that gather a network wherever it is called, and that track backward passes through it."""
        in_backward = [partial(self._pass_backward, network) for network in self.networks.values() if network.has(path)]
        if path not in self._penalized:
            message = (
                f"a gradient through {path} is differentiated again, but FSDP frees its weights in between: set"
                f" penalized_networks = ({path!r},) in the module, and compute the penalty before the network's other"
                " outputs."
            )
            in_backward.append(refusing_penalties(message))
        # with `hybrid`, nodes gather independently of each other, so no collective over all ranks follows
        before = None if self.hybrid else partial(self.reach_forward, path)
        self._hooks += tuple(gather_in_calls(root, before, in_backward))

    def lightnings_teardown(self) -> None:
        # the steps of Lightning's teardown, except for moving the module to the CPU, because FSDP refers to the shards
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self.checkpoint_io.teardown()

    def on_exception(self, exception: BaseException) -> None:
        if "DTensor" in str(exception) or "deepcopy" in str(exception):
            exception.add_note(_SHARDS)
        super().on_exception(exception)

    # ---- a step

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if "inputs" in kwargs:  # sharded parameters are not leaves of the graph
            raise RefusedInput(
                "manual_backward(loss, inputs=...) does not reach sharded parameters: name the network instead, with"
                " manual_backward(loss, network=NAME)."
            )
        named = None if network is None else network_named(self.networks, network)
        trained = [named] if named else [candidate for candidate in self.networks.values() if candidate.trains]
        self._refuse_reentrant(closure_loss, trained)
        others = [other for other in self.networks.values() if named and other is not named]
        # FSDP adds the gradients of a pass to those that a network has accumulated, and then reduces the sum.
        accumulated = [other for other in others if self.gradients[other.name].state is BLOCKED]
        others = [other for other in others if other not in accumulated]
        # FSDP does not support a backward pass for only some leaves, so restore the gradients of the other networks.
        previous = [(p, None if p.grad is None else p.grad.clone()) for other in others for p in other.parameters]
        with self.backward_of(trained):
            loss = super().backward(closure_loss, optimizer, *args, **kwargs)
            self._refuse_accumulated(trained, accumulated if self.averages else accumulated + others)
            for parameter, gradient in previous:
                parameter.grad = gradient
            for other in others:
                self.gradients[other.name].state = NONE  # as if the backward pass had not reached it
            if self.averages:
                self._average_loose()
                self._check_penalized()
        return loss

    def _refuse_reentrant(self, loss: Tensor, trained: list[OptimizedNetwork]) -> None:
        """Raises `RefusedInput` if a network's first backward pass runs reentrant activation checkpointing.

        With `wrap="network"`, the nested backward pass of reentrant checkpointing frees gradients that other parts of
        the network have accumulated.
        """
        new = {network.name for network in trained} - self._searched
        if self.wrap == "layer" or not new:
            return
        self._searched |= new
        nodes, known = [loss.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in known:
                continue
            if node.name() == f"{CheckpointFunction.__name__}Backward":
                raise RefusedInput(
                    f"a backward pass of {', '.join(sorted(new))} runs torch.utils.checkpoint with use_reentrant=True,"
                    ' which loses gradients under NetworkFSDP(wrap="network"): set use_reentrant=False, or'
                    ' wrap="layer".'
                )
            known.add(node)
            nodes += [parent for parent, _ in node.next_functions]

    def _pass_backward(self, network: OptimizedNetwork, _: Tensor) -> None:
        """Updates the state of a network during a backward pass, because FSDP sets gradients without calling hooks."""
        gradients = self.gradients[network.name]
        if not network.trains:
            return
        if not self.averages:
            gradients.state = BLOCKED
        elif gradients.state.name != "local":
            gradients.state = INTERRUPTED  # until the pass ends without an error
            at_end_of_backward(partial(_end_backward, gradients))

    def _refuse_accumulated(self, trained: list[OptimizedNetwork], others: list[OptimizedNetwork]) -> None:
        for network in others:
            if self.gradients[network.name].state is not NONE:
                where = "after" if self.averages else "inside"
                which = "accumulated" if self.averages else "next"
                raise RefusedInput(
                    f"a backward pass of {trained[0].name} {where} block_backward_sync reaches {network.name}, which"
                    f" requires gradients, so that FSDP would add these gradients to the {which} gradients of"
                    f" {network.name}: freeze it before the loss is computed."
                )

    def _average_loose(self) -> None:
        """Averages the gradients of unsharded parameters over the ranks.

        Gradients that have already been averaged do not change, because they are equal on all ranks.
        """
        loose = [parameter for network in self.networks.values() for parameter in network.loose.values()]
        average_over_ranks([p.grad for p in loose if p.requires_grad and p.grad is not None])

    def _check_penalized(self) -> None:
        for name, penalized in self._penalized.items():
            # a penalized network is still unsharded here, so these gradients have not been reduced by FSDP
            if any(parameter.grad is not None for parameter in penalized.parameters()):
                raise RuntimeError(
                    f"FSDP reduced the gradients of {name} before all of them had been computed: compute its gradient"
                    " penalty before its other outputs."
                )

    def before_step(self, network: OptimizedNetwork) -> None:
        super().before_step(network)
        self._reshard_all()  # otherwise, the next forward pass would use the old full weights

    def _reshard_all(self) -> None:
        for unit in self._units:
            unit.reshard()

    def averaged_by_us(self, network: OptimizedNetwork) -> list[nn.Parameter]:
        return list(network.loose.values())

    def has_gradients(self, network: OptimizedNetwork) -> bool:
        # FSDP stores local gradients outside of `parameter.grad`, and would add them to the next gradients
        stored = self.gradients[network.name].state.name == "local" and bool(network.roots)
        return stored or super().has_gradients(network)

    def set_averaging(self, averages: bool) -> None:
        super().set_averaging(averages)
        for network in self._roots.values():
            network.set_requires_gradient_sync(averages)

    # ---- shards of parameters, and full tensors

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the network's state dict with full tensors on the CPU. Every rank must call this method."""
        return {name: _full(value) for name, value in network.state_dict().items()}

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter."""
        return parameter.to_local() if isinstance(parameter, DTensor) else parameter

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor that has the parameter's shape."""
        if not isinstance(parameter, DTensor):
            return full.clone()
        return distribute_tensor(full, parameter.device_mesh, parameter.placements).to_local().clone()

    def free(self, parameter: nn.Parameter) -> None:
        """Frees the full tensors of all parameters that are gathered, after a shard has changed."""
        self._reshard_all()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Gathers the full tensor from the shards of all ranks. Every rank must call this method."""
        if not isinstance(parameter, DTensor):
            return shard
        placed = (parameter.device_mesh, parameter.placements)
        return DTensor.from_local(shard, *placed, shape=parameter.shape, stride=parameter.stride()).full_tensor()

    # ---- writing

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return {name: self._saved(value) for name, value in self.lightning_module.state_dict().items()}

    def _saved(self, value: Any) -> Any:
        return value if self.sharded_checkpoints else _full(value)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = super().optimizer_state(optimizer)
        moments = {index: {k: self._saved(v) for k, v in values.items()} for index, values in state["state"].items()}
        return state | {"state": moments}

    # ---- reading

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        try:
            return self._load_checkpoint(checkpoint_path, weights_only)
        except RefusedInput as refused:
            if "contains an object of" not in str(refused):
                raise
            raise RefusedInput(
                f"{refused} Under {type(self).__name__}, weights_only=False has no effect, because Lightning does not"
                " pass it on. If you trust the file, call torch.serialization.add_safe_globals([CLASS]) for the class"
                " before the run, or leave the object out with save_hyperparameters(ignore=[NAME])."
            ) from refused

    def _load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None) -> dict[str, Any]:
        if is_address(checkpoint_path):
            with downloaded_to_node(str(checkpoint_path), self) as path:
                return self._load_checkpoint(path, weights_only)
        path = Path(checkpoint_path)
        if not path.is_dir():
            return super().load_checkpoint(checkpoint_path, weights_only)
        rest = read_rest(path)
        verify_shards(path, self.global_rank, self.world_size)
        templates = {f"state_dict/{name}": value for name, value in self.lightning_module.state_dict().items()}
        parameters = [parameters_of(optimizer) for optimizer in self.optimizers]
        tensors = {}
        for name, entry in read_index(path).items():
            if name not in templates and name.startswith("optimizer_states/"):
                _, number, index, _ = name.split("/")
                templates[name] = parameters[int(number)][int(index)]
            same = name in templates and templates[name].shape == entry.size
            # each rank reads only its shard of a tensor that is sharded like its template
            tensors[name] = (
                torch.zeros_like(templates[name]) if same else torch.empty(entry.size, dtype=entry.properties.dtype)
            )
        read_into(tensors, path)
        return merge_tensors(rest, tensors)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        current = self.lightning_module.state_dict()
        state = {name: _sharded_like(value, current.get(name)) for name, value in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = parameters_of(optimizer)
            moments = {
                index: {k: _sharded_like(v, parameters[index]) for k, v in values.items()}
                for index, values in state["state"].items()
            }
            optimizer.load_state_dict(state | {"state": moments})


def _end_backward(gradients: Gradients) -> None:
    if gradients.state is INTERRUPTED:  # otherwise, a hook of an unsharded parameter has set it to local
        gradients.state = AVERAGED


def precision_policy(param_dtype: str, reduce_dtype: str) -> dict[str, Any]:
    """Returns the mixed precision arguments of `fully_shard`. The dictionary is empty if both precisions are float32.

    Raises:
        RefusedInput: the version of torch reduces gradients in the precision of the weights if the first forward pass
            of a network runs while the network is frozen.
    """
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if param_dtype == reduce_dtype == "fp32":
        return {}
    if not REDUCES_FROZEN_ALIKE:  # https://github.com/pytorch/pytorch/issues/186998
        raise RefusedInput(
            f'param_dtype="{param_dtype}" and reduce_dtype="{reduce_dtype}" need torch 2.14.1 or newer: older versions'
            " silently reduce gradients in the wrong precision if the first forward pass of a network runs while it is"
            " frozen."
        )
    policy = MixedPrecisionPolicy(param_dtype=dtypes[param_dtype], reduce_dtype=dtypes[reduce_dtype])
    return {"mp_policy": policy}


def _reshard(module: nn.Module) -> None:
    """Frees the full weights of all sharded modules inside a module."""
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()


def outermost_sharded(module: nn.Module) -> dict[str, FSDPModule]:
    """Returns the sharded modules, by path, that are not inside another sharded module."""
    outermost: dict[str, FSDPModule] = {}
    for path, child in module.named_modules():
        if isinstance(child, FSDPModule) and not _is_inside(path, outermost):
            outermost[path] = child
    return outermost


def _is_inside(path: str, outer: Iterable[str]) -> bool:
    return any(path.startswith(f"{other}.") for other in outer)


def _refuse_sharded_differently(roots: Mapping[str, nn.Module], before: Mapping[str, nn.Module]) -> None:
    """Raises `RefusedInput` if an earlier run has sharded a network together with others, or in several parts."""
    ids = {id(module) for module in before.values()}
    for path, root in roots.items():
        if id(root) not in ids and any(isinstance(parameter, DTensor) for parameter in root.parameters()):
            raise RefusedInput(
                f"{path} must be sharded on its own, but an earlier run of this module has sharded {', '.join(before)}"
                " instead: fit the module before its first evaluation, with the same optimizers each time, or create"
                " a new module."
            )


def frozen_copies(module: nn.Module, roots: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Returns the frozen modules, by path, that are copies of one of the networks.

    Examples are EMA and target networks. They are sharded in the same way as the network, so that any arithmetic
    operation can update them from the network's parameters.

    A copy has the same classes and parameters as the network. If it is part of a larger module with a `forward` and
    further parameters, its values must also equal the network's, because a layer of a teacher can have the same class
    and shapes by coincidence.
    """
    signatures = [(root, _signature(root)) for root in roots.values()]
    copies: dict[str, nn.Module] = {}
    for path, child in module.named_modules():
        if any(parameter.requires_grad for parameter in child.parameters()) or _is_inside(path, copies):
            continue
        signature = _signature(child)
        alike = [root for root, other in signatures if other == signature]
        is_part = _is_part(module, path, len([*child.parameters()]))
        if isinstance(child, FSDPModule) or any(not is_part or _equal(child, root) for root in alike):
            copies[path] = child
    return copies


def _signature(module: nn.Module) -> tuple[Any, ...]:
    """Returns the names and classes of all modules in a module, and names, shapes and dtypes of its parameters."""
    modules = tuple((name, type_before_parametrizations(inner)) for name, inner in module.named_modules())
    return modules, tuple((name, p.shape, p.dtype) for name, p in module.named_parameters())


def _is_part(module: nn.Module, path: str, num_parameters: int) -> bool:
    """Returns whether a module inside the given module has a `forward`, contains the path, and has more parameters."""
    outer = [module.get_submodule(path[: match.start()]) for match in re.finditer(r"\.", path)]
    with_forward = (each for each in outer if type(each).forward is not nn.Module.forward)
    return any(len([*each.parameters()]) > num_parameters for each in with_forward)


def _equal(one: nn.Module, other: nn.Module) -> bool:
    """Returns whether two modules have equal parameters. Parameters of modules that are sharded count as different."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return not any(isinstance(b, DTensor) or a.device != b.device or not torch.equal(a, b) for a, b in pairs)


class _ShardPrecision(Precision):
    """Lightning's float32 precision plugin, which also clips gradients of shards and of full tensors together.

    Lightning's plugin clips with functions of torch that cannot mix them.
    """

    def clip_grad_by_norm(self, optimizer: torch.optim.Optimizer, clip_val: int | float) -> None:
        kinds = _of_one_kind(optimizer)
        if len(kinds) < 2:
            super().clip_grad_by_norm(optimizer, clip_val)
            return
        norms = [torch.nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in kinds]
        total = torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]).norm()
        for kind in kinds:
            torch.nn.utils.clip_grads_with_norm_(kind, clip_val, total)

    def clip_grad_by_value(self, optimizer: torch.optim.Optimizer, clip_val: int | float) -> None:
        for kind in _of_one_kind(optimizer):
            torch.nn.utils.clip_grad_value_(kind, clip_val)


class _ShardMixedPrecision(_ShardPrecision, MixedPrecision):
    """Lightning's autocast plugin, which also clips gradients of shards and of full tensors together."""


def _of_one_kind(optimizer: torch.optim.Optimizer) -> list[list[nn.Parameter]]:
    """Returns the parameters with gradients that are shards, and those that are full tensors, without empty lists."""
    parameters = [parameter for parameter in parameters_of(optimizer) if parameter.grad is not None]
    shards = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
    full = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
    return [kind for kind in (shards, full) if kind]


def _shard_layers(network: nn.Module, **settings: Any) -> None:
    """Turns each layer that has parameters into a separate FSDP unit, innermost layers first.

    Skips layers with tied parameters.
    """
    whole = [layer for layer in network.modules() if isinstance(layer, _WHOLE)]
    inside = {id(inner) for layer in whole for inner in layer.modules() if inner is not layer}
    layers = {
        layer: [*layer.parameters(recurse=isinstance(layer, _WHOLE))]
        for layer in network.modules()
        if id(layer) not in inside
    }
    owners = Counter(id(parameter) for parameters in layers.values() for parameter in parameters)
    for layer, parameters in reversed(layers.items()):
        tied = any(owners[id(parameter)] > 1 for parameter in parameters)
        if parameters and layer is not network and not tied and type(layer).forward is not nn.Module.forward:
            fully_shard(layer, **settings)


def gather_in_calls(
    root: FSDPModule, before: Callable[[], None] | None, in_backward: list[Callable[[Tensor], None]]
) -> Iterator[RemovableHandle]:
    """Registers hooks that make FSDP gather a network wherever it is called, and yields their handles.

    FSDP itself gathers only in the `forward` of a sharded module, and registers backward hooks only on output tensors
    in tuples, lists and dictionaries. The hooks registered here support two more cases: a training step calls a module
    inside the network, such as `self.vae.decoder(z)`, or the network returns an object, such as a distribution.

    Args:
        root: sharded network.
        before: function to call before each call that gathers the network.
        in_backward: functions to call with the gradient of each output of the network.
    """
    entered: list[bool] = []  # for each running call of a module inside the network: whether it gathers the network
    shards = [*root.parameters()]
    trained: list[bool] = []  # whether each parameter required a gradient in the last forward pass

    def reshard_if_toggled() -> None:
        """Reshards the network if some of its parameters were frozen or unfrozen while they were full tensors.

        `toggle_optimizer` changes the shards, and `network.requires_grad_` changes the full tensors.
        """
        pairs = [*zip(shards, root.parameters(), strict=True)]
        if not trained or all(shard.requires_grad == full.requires_grad for shard, full in pairs):
            return
        for (shard, full), was in zip(pairs, trained, strict=True):
            if full.requires_grad != was:
                shard.requires_grad_(full.requires_grad)
        _reshard(root)

    @torch.compiler.disable
    def note(*_: Any) -> None:
        reshard_if_toggled()
        if before is not None and any(isinstance(parameter, DTensor) for parameter in root.parameters()):
            before()

    @torch.compiler.disable
    def watch(_: nn.Module, inputs: Any, outputs: Any) -> None:
        trained[:] = [parameter.requires_grad for parameter in shards]
        seen_by_fsdp = {id(leaf) for leaf in tree_leaves(outputs)}
        for tensor in tensors_in(outputs):
            if tensor.requires_grad:
                for function in in_backward:
                    tensor.register_hook(function)
                if id(tensor) not in seen_by_fsdp:
                    tensor.register_hook(begin_backward(root))

    def begin(_: nn.Module, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # the full network is being compiled, and its own hooks gather it
            return None
        entered.append(not is_computing(root))
        if not entered[-1]:
            return None
        note()
        return begin_forward(root, args, kwargs)

    def end(module: nn.Module, args: Any, outputs: Any) -> Any:
        if torch.compiler.is_compiling() or not entered.pop():
            return None
        outputs = end_forward(root, args, outputs)
        watch(module, args, outputs)
        return outputs

    yield root.register_forward_pre_hook(note, prepend=True)
    yield root.register_forward_hook(watch)
    for module in root.modules():
        called = type(module).forward is not nn.Module.forward and not isinstance(module, ParametrizationList)
        if called and module is not root:
            yield module.register_forward_pre_hook(begin, prepend=True, with_kwargs=True)
            yield module.register_forward_hook(end, always_call=True)


def _exchange_parameters(optimizers: list[torch.optim.Optimizer], sharded: Mapping[int, nn.Parameter]) -> None:
    """Replaces the full parameters of optimizers by sharded parameters, and shards the optimizer states accordingly.

    Args:
        optimizers: optimizers of full parameters.
        sharded: sharded parameters, by the ids of the full parameters.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [sharded[id(parameter)] for parameter in group["params"]]
        for full in [*optimizer.state]:
            states, new = optimizer.state.pop(full), sharded[id(full)]
            optimizer.state[new] = {key: _sharded_like(value, new) for key, value in states.items()}


def _refuse_shared(module: nn.Module, roots: Mapping[str, nn.Module]) -> None:
    """Raises `RefusedInput` if two separately sharded modules share a layer or a parameter.

    Each of the two modules would have separate shards of the shared parameters, and the shards would diverge.
    """
    root_of = {id(inner): path for path, root in roots.items() for inner in root.modules()}
    root_ids = {id(root) for root in roots.values()}
    owners: dict[int, set[str]] = {}
    for path, parent in module.named_modules():
        owner = root_of.get(id(parent), path or "the module itself")
        for name, child in parent.named_children():
            if id(child) in root_of and id(child) not in root_ids and root_of[id(child)] != owner:
                what = f"the layer {path}.{name}".replace(" .", " ")
                raise RefusedInput(_shared_message(what, root_of[id(child)], owner))
        for name, parameter in parent.named_parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(owner)
            if len(owners[id(parameter)]) > 1 and owners[id(parameter)] & roots.keys():
                what = f"the parameter {path}.{name}".replace(" .", " ")
                raise RefusedInput(_shared_message(what, *sorted(owners[id(parameter)])))


def _shared_message(what: str, one: str, other: str) -> str:
    return (
        f"{what} belongs to both {one} and {other}, which FSDP shards separately: put both into one child module, or"
        " use NetworkDDP."
    )


def _full(value: Any) -> Any:
    """Returns a DTensor as a full tensor on the CPU, and other values unchanged. Every rank must call this function."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def _sharded_like(value: Any, template: Any) -> Any:
    """Shards a full tensor in the same way as `template`, and returns other values unchanged."""
    if isinstance(value, DTensor) or not (
        isinstance(template, DTensor) and isinstance(value, Tensor) and value.shape == template.shape
    ):
        return value
    return distribute_tensor(value.to(template.device), template.device_mesh, template.placements)
