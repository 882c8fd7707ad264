"""Strategy that creates one DeepSpeed engine for each network."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from lit_gans.common._compat.deepspeed import (
    backward_into,
    forbid_compiled_operations,
    gather_small,
    stays_gathered,
    zero3_free,
    zero3_shape,
    zero3_shard,
)
from lit_gans.common._compat.lightning import batch_index
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, import_extra, nearest
from lit_gans.common.lightning import LightningModule, MixedPrecision, Precision, Trainer
from lit_gans.strategies.base import NetworkStrategy, replace_precision_plugin
from lit_gans.strategies.deepspeed.optimizer import AllGroups, EngineOptimizer, with_padding
from lit_gans.strategies.gradients import LOCAL
from lit_gans.strategies.module_networks import (
    OptimizedNetwork,
    call_in_backward,
    leaves_of,
    make_contiguous,
    network_named,
    penalized_networks,
    refusing_penalties,
)
from lit_gans.strategies.rank_positions import RanksDisagree

_LARGEST_BUCKET = 50_000_000  # number of elements; DeepSpeed's default for each engine is ten times as large
_KEYS = (  # settings that affect the engines; DeepSpeed silently ignores all other settings
    "zero_optimization",
    "gradient_clipping",
    "communication_data_type",
    "prescale_gradients",
    "gradient_predivide_factor",
    "disable_allgather",
    "sparse_gradients",
    "data_types",
    "checkpoint",
    "aio",
    "comms_logger",
    "dump_state",
    "memory_breakdown",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
)


class NetworkDeepSpeed(NetworkStrategy):
    """DeepSpeed training of a module with several networks and manual optimization, with one engine for each network.

    Lightning's DeepSpeed strategy has one engine and accepts only one optimizer. This strategy creates a separate
    engine for each network that has an optimizer. The networks in the module stay unwrapped. A backward pass trains all
    networks that require gradients and that the loss depends on. `manual_backward(loss, network=NAME)` trains only the
    network with that name. Stages 1 and 2 store the gradients of only one backward pass. If several backward passes run
    before a step, run all except for the last one in `with trainer.strategy.block_backward_sync():`.

    Stage 0 replicates all tensors. Stage 1 shards the optimizer states over the ranks (ZeRO: Rajbhandari et al. 2020),
    stage 2 also shards the gradients, and stage 3 also shards the parameters. Checkpoints are single files that contain
    full tensors under their original names, including optimizer states. They can be loaded on a single CPU, and
    training can be resumed from them under any strategy and with any number of ranks.

    `self.optimizers()` returns an `EngineOptimizer` for each engine, which steps the module's parameters. The engines
    store the gradients, and reading a gradient in the module raises an error. The engines clip gradients to the norm of
    `self.clip_gradients(optimizer, NORM, "norm")` before a step, or to `gradient_clipping` of `config`, and never to
    DeepSpeed's default.

    Args:
        stage: stage of ZeRO.
        offload_optimizer: whether to store optimizer states and run optimizer steps on the CPU. Requires stage 1, 2 or
            3.
        config: DeepSpeed settings, or the path of a JSON file with such settings. These settings override the other
            arguments.
        sharded_checkpoints: whether each rank writes its shards with torch.distributed.checkpoint. A checkpoint is then
            a folder, used like a file.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: backend of torch.distributed; null uses nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a setting, module or precision is not supported.
    """

    # other optimizers that need full matrices are not recognized, and train wrong weights
    refused_optimizers = frozenset({"Adafactor", "Lamb", "LARS", "Muon", "Shampoo", "SOAP"})

    @converts_arguments
    def __init__(
        self,
        *,
        stage: Literal[0, 1, 2, 3] = 2,
        offload_optimizer: bool = False,
        config: dict[str, Any] | str | None = None,
        sharded_checkpoints: bool = False,
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        super().__init__(timeout=timeout, process_group_backend=process_group_backend)
        settings = json.loads(Path(config).read_bytes()) if isinstance(config, str) else config or {}
        for key in settings:
            if key not in _KEYS:
                raise RefusedInput(
                    f"{key} in the DeepSpeed config has no effect here; {nearest(key, _KEYS)} Set optimizers and"
                    " gradient accumulation in the module, the precision in the Trainer, and the batch size in the"
                    " data."
                )
        zero = {"stage": stage} | settings.get("zero_optimization", {})
        if offload_optimizer:
            zero.setdefault("offload_optimizer", {"device": "cpu"})
        if "offload_optimizer" in zero and not zero["stage"]:
            raise RefusedInput(
                "offload_optimizer=True has no effect with stage=0, which does not shard optimizer states: use stage=1,"
                " 2 or 3."
            )
        _refuse_values(settings | zero)
        self.config: dict[str, Any] = settings | {"zero_optimization": zero}
        self.stage: int = zero["stage"]
        self.sharded_checkpoints = sharded_checkpoints
        self.engines: dict[str, Any] = {}

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are currently sharded. If so, no rank holds a full network."""
        return self.stage == 3 and bool(self.engines)

    # ---- setup and end

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(
                f'Trainer(precision="{precision}") does not work with NetworkDeepSpeed, whose engines compute in'
                ' float32, or in bfloat16 with autocast: use "32-true" or "bf16-mixed", or NetworkDDP.'
            )
        penalized = penalized_networks(module)
        if self.stage == 3 and penalized:
            raise RefusedInput(_freed(", ".join(penalized)))

    def setup(self, trainer: Trainer) -> None:
        self._failed = False  # a previous fit with the same trainer may have failed
        replace_precision_plugin(self, _EnginePrecision, _EngineMixedPrecision)
        super().setup(trainer)

    def setup_optimizers(self, trainer: Trainer) -> None:
        module = self.lightning_module
        if module.automatic_optimization:  # its backward passes and steps would bypass the engines
            raise RefusedInput(
                f"{type(module).__name__} uses automatic optimization, which NetworkDeepSpeed does not support: set"
                " self.automatic_optimization = False, and call self.manual_backward(loss) and optimizer.step() in the"
                " training step; or use Lightning's strategy='deepspeed', which trains one network."
            )
        super().setup_optimizers(trainer)
        deepspeed = import_deepspeed(self.root_device.type)
        self._mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for name, network in self.networks.items():
            self.networks[name] = replace(network, optimizer=self._make_engine(deepspeed, network))
        self.optimizers = [network.optimizer for network in self.networks.values()]
        self.limit_waiting()  # sets the timeout of the process groups that DeepSpeed has created

    def _make_engine(self, deepspeed: Any, network: OptimizedNetwork) -> EngineOptimizer:
        for name, parameter in self.lightning_module.named_parameters():
            if parameter.dtype != torch.float32 and network.has(name):
                dtype = str(parameter.dtype).removeprefix("torch.")
                raise RefusedInput(
                    f"DeepSpeed trains parameters in float32, but {name} has dtype {dtype}: use module.float(), or"
                    " NetworkDDP or NetworkFSDP."
                )
            if parameter.dim() == 0 and network.has(name):
                raise RefusedInput(
                    f"DeepSpeed does not support parameters with zero dimensions, such as {name}: give it the shape"
                    " (1,), or use NetworkDDP or NetworkFSDP."
                )
        gradients = self.gradients[network.name]
        optimizer = EngineOptimizer(gradients, network.optimizer, self.stage, self.shard, self._saved)
        roots = [*network.roots.values()]
        module = roots[0] if len(roots) == 1 and not network.loose else _Pieces(network)
        make_contiguous(module)
        config, groups = self._config_of(module), [*network.optimizer.param_groups]
        engine = deepspeed.initialize(model=module, optimizer=network.optimizer, config=config)[0]
        engine.set_gradient_accumulation_boundary(True)
        if len(groups) > len(network.optimizer.param_groups):
            for scheduler_config in self.lr_scheduler_configs:
                if scheduler_config.scheduler.optimizer is network.optimizer:
                    scheduler_config.scheduler.optimizer = AllGroups(network.optimizer, groups)
        self.engines[network.name] = optimizer.engine = engine
        optimizer.places = [parameter.data_ptr() for parameter in optimizer.parameters]
        self._hooks += optimizer.watch()
        if self.stage == 3:
            optimizer.refuse_operations()  # notes the current versions
            self._gather_in_forward(network)
        return optimizer

    def _gather_in_forward(self, network: OptimizedNetwork) -> None:
        """Registers hooks on a network's forward pass for stage 3.

        The hooks record each forward pass that gathers parameters. They raise an error for gradient penalties, and for
        parameters that were changed outside of a step.
        """
        gather_small(self.engines[network.name])  # DeepSpeed gathers small parameters only after its first step
        for path, root in network.roots.items():
            check = torch.compiler.disable(lambda *_: self._refuse_changes(self.networks[network.name]))
            gather = torch.compiler.disable(lambda *_: self._gather_small_parameters())
            self._hooks += (root.register_forward_pre_hook(check, prepend=True), root.register_forward_hook(gather))
            self._hooks += (call_in_backward(root, refusing_penalties(_freed(path))),)
            if not all(map(stays_gathered, root.parameters())):
                note = torch.compiler.disable(lambda *_, path=path: self.reach_forward(path))
                self._hooks += (root.register_forward_pre_hook(note, prepend=True),)
        for name, parameter in network.loose.items():
            if not stays_gathered(parameter):
                raise RefusedInput(
                    f"ZeRO stage 3 gathers the parameters of a layer in the layer's forward, but {name} is larger than"
                    " stage3_param_persistence_threshold and belongs to a module that computes without a forward: move"
                    " it into a module with a forward, or use stage 2."
                )

    def _config_of(self, network: nn.Module) -> dict[str, Any]:
        """Returns the settings of one network's engine."""
        bucket = min(sum(parameter.numel() for parameter in network.parameters()), _LARGEST_BUCKET)
        bucket += bucket % 2  # DeepSpeed requires an even number
        zero = {"reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = bucket
        fixed = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
        # DeepSpeed's default of gradient_clipping is 1
        defaults = {
            "gradient_clipping": 0.0,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        return {**defaults, **self.config, **fixed, "zero_optimization": zero | self.config["zero_optimization"]}

    def teardown(self) -> None:
        for optimizer in self.optimizers:
            if isinstance(optimizer, EngineOptimizer):
                optimizer.close(keeps_states=not self._failed)
        if self.is_sharded and not self._failed:
            for network in self.networks.values():
                for parameter in network.parameters:
                    parameter.data = self.unshard(self.local_shard(parameter), parameter).to(self.root_device)
        for engine in self.engines.values():
            engine.destroy()
        self.engines.clear()
        super().teardown()

    def on_exception(self, exception: BaseException) -> None:
        if self.stage == 3 and isinstance(exception, RuntimeError) and not isinstance(exception, RanksDisagree):
            exception.add_note(
                "Under ZeRO stage 3, a parameter is empty outside of the forward pass of its layer. If that is the"
                " reason for this error, use NetworkDeepSpeed(stage=2)."
            )
        if isinstance(exception, AssertionError) and "has already been reduced" in str(exception):
            exception.add_note(
                "If the network runs torch.utils.checkpoint with use_reentrant=True more than once in a backward pass,"
                " use use_reentrant=False."
            )
        super().on_exception(exception)

    # ---- a step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_changes(*self.networks.values())
        return super().training_step(*args, **kwargs)

    def on_train_end(self) -> None:
        self._refuse_changes(*self.networks.values())
        super().on_train_end()

    def _refuse_changes(self, *networks: OptimizedNetwork) -> None:
        for network in networks if self.stage == 3 else ():
            network.optimizer.refuse_operations()
            if self._checks_for_changes():
                network.optimizer.refuse_changes()

    def _gather_small_parameters(self) -> None:
        """Gathers small parameters that were freed, so that changes to them can be detected."""
        for engine in self.engines.values() if self._checks_for_changes() else ():
            gather_small(engine)

    def _checks_for_changes(self) -> bool:
        """Returns whether to compare parameters with their shards, to find changes outside of a step.

        Stage 3 checks only in the first 100 iterations, because each check synchronizes with the device.
        """
        trainer = self.lightning_module.trainer
        return self.stage == 3 and trainer.training and batch_index(trainer) < 100

    def before_step(self, network: OptimizedNetwork) -> None:
        super().before_step(network)
        self._refuse_changes(network)

    def had_gradient(self, network: OptimizedNetwork) -> bool:
        """Returns True, because an engine steps its optimizer only if there are gradients."""
        return True

    def has_gradients(self, network: OptimizedNetwork) -> bool:
        # an engine stores local gradients, and resets the state in zero_grad()
        return self.gradients[network.name].state.name == "local" or super().has_gradients(network)

    def refuse_assigned(self, network: OptimizedNetwork) -> None:
        self.gradients[network.name].refuse(LOCAL.remedy)  # an engine steps only with gradients that it has stored

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *,
        network: str | None = None,
        retain_graph: bool = False,
    ) -> Tensor:
        leaves = leaves_of(closure_loss)
        trained, others = self._trained_networks(leaves, network)
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        for net in self.networks.values():
            net.optimizer.remove_gradients()
        for net in trained:
            net.optimizer.begin_backward(loss)
        with self.backward_of(trained):
            if len(trained) == 1 and not others:
                engine = self.engines[trained[0].name]
                engine.backward(loss, retain_graph=retain_graph, scale_wrt_gas=False)
            else:
                inputs = [p for net in trained for p in net.parameters if p.requires_grad]
                backward_into([self.engines[net.name] for net in trained], loss, inputs, self.stage, retain_graph)
        self._gather_small_parameters()
        for net in self.networks.values():
            net.optimizer.place_gradients()
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def _trained_networks(self, leaves: set[int], network: str | None) -> tuple[list[OptimizedNetwork], bool]:
        """Returns the networks that a backward pass trains, and whether the pass also reaches other networks.

        Args:
            leaves: ids of the parameters that the backward pass reaches.
            network: name of the only network to train; None trains each network that requires gradients.

        Raises:
            RefusedInput: the backward pass does not train any network.
        """
        reached = [net for net in self.networks.values() if net.is_reached(leaves)]
        if network is not None:
            trained = [network_named(self.networks, network)]
        else:
            trained = [net for net in self.networks.values() if net.trains]
            if len(trained) > 1:
                trained = [net for net in trained if net in reached]
        if not trained:
            raise RefusedInput(
                "a backward pass does not train any network, because its loss does not depend on any parameter that"
                " requires a gradient: unfreeze the network before its forward pass."
            )
        return trained, any(net not in trained for net in reached)

    def set_averaging(self, averages: bool) -> None:
        super().set_averaging(averages)
        for engine in self.engines.values():
            engine.set_gradient_accumulation_boundary(averages)

    # ---- shards of parameters, and full tensors

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's flat shard of a parameter under stage 3.

        The padding at the end of the shard is removed, because DeepSpeed does not initialize it.
        """
        padded = zero3_shard(parameter)
        return padded[: max(zero3_shape(parameter).numel() - self.global_rank * padded.numel(), 0)]

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Under stage 3, returns this rank's shard of a full tensor that has the parameter's shape."""
        size = zero3_shard(parameter).numel()
        return full.flatten()[self.global_rank * size :][:size].clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Under stage 3, gathers the full tensor from the shards of all ranks. Every rank must call this method."""
        padded = with_padding(shard, parameter)
        gathered = padded.new_empty(padded.numel() * self.world_size)
        dist.all_gather_into_tensor(gathered, padded.contiguous())
        shape = zero3_shape(parameter)
        return gathered[: shape.numel()].view(shape)

    def free(self, parameter: nn.Parameter) -> None:
        """Frees a parameter's full tensor, if it is gathered, after the shard has changed."""
        if parameter.shape == zero3_shape(parameter):
            zero3_free(parameter)

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the network's state dict with full tensors on the CPU. Every rank must call this method."""
        return {name: value.cpu() for name, value in self._gathered(network, Tensor.cpu).items()}

    def _gathered(self, module: nn.Module, saved: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Returns a module's state dict, in which sharded parameters are gathered one by one.

        Args:
            module: module.
            saved: function that converts each full tensor before the next tensor is gathered.
        """
        state = module.state_dict()
        sharded = {id(p) for network in self.networks.values() for p in network.parameters} if self.is_sharded else ()
        full: dict[int, Tensor] = {}  # by id, so that a tied parameter is gathered only once
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) in sharded and name in state:
                if id(parameter) not in full:
                    full[id(parameter)] = saved(self.unshard(self.local_shard(parameter), parameter))
                state[name] = full[id(parameter)]
        return state

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self._gathered(self.lightning_module, self._saved)

    def _saved(self, full: Tensor) -> Tensor:
        """Returns the value to save: this rank's shard with `sharded_checkpoints`, else the full tensor on the CPU."""
        if not self.sharded_checkpoints:
            return full.cpu()
        return distribute_tensor(full.to(self.root_device), self._mesh, [Shard(0)], src_data_rank=None)


class _EnginePrecision(Precision):
    """Lightning's float32 precision plugin, which lets the engines clip the gradients that they store."""

    def clip_grad_by_norm(self, optimizer: torch.optim.Optimizer, clip_val: int | float) -> None:
        if not isinstance(optimizer, EngineOptimizer):
            raise RefusedInput(
                f"{type(optimizer).__name__} has no gradients under DeepSpeed: clip those of the optimizer that"
                " self.optimizers() returns."
            )
        if optimizer.stage:
            optimizer.clip(clip_val)
        else:
            super().clip_grad_by_norm(optimizer, clip_val)

    def clip_grad_by_value(self, optimizer: torch.optim.Optimizer, clip_val: int | float) -> None:
        raise RefusedInput(
            'self.clip_gradients(optimizer, VALUE, "value") has no effect under DeepSpeed, whose engines clip gradients'
            ' by their norm alone: use "norm", or NetworkDDP or NetworkFSDP.'
        )


class _EngineMixedPrecision(_EnginePrecision, MixedPrecision):
    """Lightning's autocast plugin, which lets the engines clip the gradients that they store."""


class _Pieces(nn.Module):
    """Container for a network's submodules and single parameters. The training step calls the submodules directly."""

    def __init__(self, network: OptimizedNetwork) -> None:
        super().__init__()
        for index, root in enumerate(network.roots.values()):
            self.add_module(str(index), root)
        for index, parameter in enumerate(network.loose.values(), start=len(network.roots)):
            self.register_parameter(str(index), parameter)

    def forward(self) -> None:
        """Does nothing."""


def import_deepspeed(device: str) -> Any:
    """Imports DeepSpeed and returns it. The device is set first, so that DeepSpeed does not detect it."""
    if device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import_extra("deepspeed.ops", "deepspeed")
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if device == "cpu":
        forbid_compiled_operations(deepspeed)
    return deepspeed


def _refuse_values(settings: dict[str, Any]) -> None:
    """Raises `RefusedInput` if a setting has a value that DeepSpeed does not support."""
    for key, value in settings.items():
        if value == "auto":
            raise RefusedInput(
                f'{key}="auto" in the DeepSpeed config is a placeholder that only transformers and accelerate replace:'
                " set a value, or leave the setting out."
            )
    clip = settings.get("gradient_clipping", 0.0)
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not clip >= 0:
        raise RefusedInput(
            f"gradient_clipping={clip!r} in the DeepSpeed config must be a number of at least 0: the maximum norm of a"
            " network's gradient, or 0 for no clipping."
        )


def _freed(networks: str) -> str:
    return (
        f"ZeRO stage 3 frees the weights of {networks} before the gradient penalty is differentiated again: use"
        " NetworkDeepSpeed(stage=2), or NetworkFSDP."
    )
