"""One DeepSpeed engine for each network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from lit_gans.checkpoints.sharded import REST, read_rest
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import contracts
from lit_gans.strategies.base import NetworkStrategy, limit_waiting, replacing
from lit_gans.strategies.deepspeed import settings as deepspeed_settings
from lit_gans.strategies.deepspeed.zero import ZeroOptimizer
from lit_gans.strategies.module_networks import networks_of, optimized_networks

_LARGEST_BUCKET = 50_000_000  # elements; DeepSpeed's own default is ten times that, for each engine


class NetworkDeepSpeed(NetworkStrategy, DDPStrategy):
    """One DeepSpeed engine for each network of a module with several networks and manual optimization.

    Lightning's own strategy has one engine and accepts one optimizer. Here each network that an optimizer steps gets an
    engine; the module computes with its plain networks, under their own names. A backward trains the network whose
    parameters require a gradient: freeze the others before they compute. Where several require one and each has a loss
    of its own, `manual_backward(loss, network=NAME)` says which. Stages 1 and 2 keep the gradients of one backward: of
    several before a step, all but the last belong into `with trainer.strategy.block_backward_sync():`.

    Stage 0 copies everything, 1 cuts the optimizer states over the ranks (ZeRO: Rajbhandari et al. 2020), 2 also the
    gradients, 3 also the parameters. Checkpoints are single files with whole tensors under the plain names, optimizer
    states included: they load on one CPU, and training resumes from them under any strategy and number of ranks.

    Gradients are clipped by the engine, at the module's `clip_gradients_to` where it has one, or at the
    `gradient_clipping` of `config`; never by DeepSpeed's default. From stage 1 on the gradients of the parameters are
    not what the engine steps with: clipping those has no effect.

    Args:
        stage: of ZeRO.
        offload_optimizer: optimizer states and steps are on the CPU; needs stage 1, 2 or 3.
        config: DeepSpeed's own settings, or the path of a JSON file with them; its keys win over the arguments.
        sharded_checkpoints: each rank writes its parts in DeepSpeed's own format, with a tag for each network: a
            checkpoint is a folder then. Its networks load on one CPU; training resumes from it under the same stage and
            number of ranks only.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: null for nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a value, a module or a precision that cannot work.
    """

    backward_names_network = True
    clips_gradients = True

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
        if timeout <= 0:
            raise RefusedInput(f"timeout={timeout} must be greater than 0.")
        super().__init__(process_group_backend=process_group_backend, timeout=timedelta(seconds=timeout))
        self.config = {"zero_optimization": {}} | deepspeed_settings.read(config)
        self.config["zero_optimization"] = {"stage": stage} | self.config["zero_optimization"]
        if offload_optimizer:
            self.config["zero_optimization"].setdefault("offload_optimizer", {"device": "cpu"})
        self.sharded_checkpoints = sharded_checkpoints
        self.stage: int = self.config["zero_optimization"]["stage"]
        deepspeed_settings.refuse(self.config, self.stage, sharded_checkpoints)
        self.engines: dict[str, Any] = {}
        self._names: dict[int, str] = {}  # of the network that an optimizer steps
        self._reduced: set[str] = set()  # networks whose gradients are ready for a step
        self._steps = False  # an engine steps
        self._zero: dict[str, ZeroOptimizer] = {}

    @property
    def is_sharded(self) -> bool:
        """Whether no rank has a whole network."""
        return self.stage == 3 and bool(self.engines)

    # ---- setup and end

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(
                f"precision={precision} with strategy=deepspeed: the engines compute in float32, and in bfloat16 by"
                " autocast: use precision=fp32 or bf16, or strategy=ddp."
            )
        penalised = contracts.penalised_networks(module)
        if self.stage == 3 and penalised:
            raise RefusedInput(
                f"ZeRO stage 3 frees the weights of {', '.join(penalised)} before its gradient penalty is"
                " differentiated again: use trainer.strategy.stage=2, or strategy=fsdp."
            )

    def configure_ddp(self) -> None:
        """Nothing: engines need the optimizers."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        module = self.lightning_module
        deepspeed = deepspeed_settings.load(self.root_device.type)
        self._names = optimized_networks(self.optimizers, module)
        missing = networks_of(module).keys() - {*self._names.values()}
        if missing:
            raise RefusedInput(f"no optimizer steps {', '.join(sorted(missing))}: freeze it or give it an optimizer.")
        for optimizer in self.optimizers:
            name = self._names[id(optimizer)]
            zero = self._zero[name] = ZeroOptimizer(optimizer, self.stage)
            network = getattr(module, name)
            network.to(memory_format=torch.contiguous_format)  # DeepSpeed broadcasts and flattens no other layout
            config = self._config_of(network)
            self.engines[name] = deepspeed.initialize(model=network, optimizer=optimizer, config=config)[0]
            self.engines[name].set_gradient_accumulation_boundary(True)
            zero.engine = self.engines[name]
            if self.stage:
                self._refuse_lone_steps(optimizer)
            if self.stage == 3:
                sentence = (
                    f"a gradient through {name} is differentiated again, and ZeRO stage 3 frees its weights between:"
                    " use trainer.strategy.stage=2, or strategy=fsdp."
                )
                self.refuse_penalty(network, sentence)
        limit_waiting(self._timeout)  # in DeepSpeed's own groups too

    def setup_precision_plugin(self) -> None:
        super().setup_precision_plugin()
        if not self.stage or not self.engines:
            return
        for wrapper in self._lightning_optimizers:
            # the optimizer has flat parts now, whose gradients belong to ZeRO
            wrapper.zero_grad = partial(self._zero_grad, self._names[id(wrapper.optimizer)])
        self.precision_plugin.clip_gradients = self._refuse_clipping

    def _zero_grad(self, name: str, set_to_none: bool = True) -> None:
        self._reduced.discard(name)
        self.engines[name].optimizer.zero_grad(set_to_none)

    def _refuse_clipping(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        raise RefusedInput(
            f"self.clip_gradients has no effect under ZeRO stage {self.stage}, whose engine clips what it steps with:"
            ' NetworkDeepSpeed(config={"gradient_clipping": VALUE}).'
        )

    def _refuse_lone_steps(self, optimizer: torch.optim.Optimizer) -> None:
        step = optimizer.step

        @wraps(step)
        def engine_steps(*args: Any, **kwargs: Any) -> Any:
            if not self._steps:
                raise RefusedInput(
                    f"under ZeRO stage {self.stage} a torch optimizer has no gradients of its own: step the one that"
                    " self.optimizers() returns."
                )
            return step(*args, **kwargs)

        optimizer.step = engine_steps

    def _config_of(self, network: nn.Module) -> dict[str, Any]:
        bucket = min(sum(parameter.numel() for parameter in network.parameters()), _LARGEST_BUCKET)
        bucket += bucket % 2  # DeepSpeed wants an even number
        zero = {"reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = bucket
        clip = contracts.clip_gradients_to(self.lightning_module)
        given = self.config.get("gradient_clipping", clip or 0.0)
        if clip is not None and given != clip:
            raise RefusedInput(f"gradient_clipping={given} in the config and clip_gradients={clip} in the module.")
        fixed = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": given}
        free = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        return free | self.config | fixed | {"zero_optimization": zero | self.config["zero_optimization"]}

    def teardown(self) -> None:
        if self.is_sharded and not self._failed:
            for network in (getattr(self.lightning_module, name) for name in self.engines):
                whole = self.full_state_dict(network)
                for name, parameter in network.named_parameters():
                    parameter.data = whole[name].to(self.root_device)
        for engine in self.engines.values():
            engine.destroy()
        self.engines.clear()
        self._zero.clear()
        self._reduced.clear()  # of a step that an error ended
        super().teardown()

    # ---- a step

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        self.refuse_unknown(network, self.engines)
        name = network or self._trained_network()
        engine = self.engines[name]
        if self.stage in (1, 2) and engine.is_gradient_accumulation_boundary():
            if name in self._reduced:
                raise RefusedInput(
                    f"two backwards of {name} before its step, of which ZeRO stage {self.stage} would keep the last"
                    " only: add up the losses, or put all but the last into"
                    " `with self.trainer.strategy.block_backward_sync():`."
                )
            self._reduced.add(name)
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        if self.stage:  # what the engine's own forward would do: the plain network computed
            engine.optimizer.clear_backward_seen_flag()
            loss.register_hook(lambda _: engine._backward_prologue())
        engine.backward(loss, scale_wrt_gas=False)
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def _trained_network(self) -> str:
        names = [name for name, zero in self._zero.items() if any(p.requires_grad for p in zero.parameters)]
        if len(names) != 1:
            raise RuntimeError(
                f"a backward must train one network, this one trains {names}: freeze the others, or name it with"
                " manual_backward(loss, network=NAME)."
            )
        return names[0]

    def optimizer_step(
        self,
        optimizer: torch.optim.Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | nn.Module | None = None,
        **kwargs: Any,
    ) -> Any:
        result = closure()
        self.precision_plugin._after_closure(model or self.lightning_module, optimizer)  # Lightning's hooks
        name = self._names[id(optimizer)]
        self._steps = True
        try:
            self.engines[name].step()
        finally:
            self._steps = False
        self._reduced.discard(name)
        return result

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Lets gradients add up; the next backward outside makes them ready for a step."""
        for engine in self.engines.values():
            engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            for engine in self.engines.values():
                engine.set_gradient_accumulation_boundary(True)

    def tensors_held(self) -> dict[str, list[Tensor]]:
        held = super().tensors_held()
        for zero in self._zero.values() if self.stage else ():
            if self.stage == 3:
                held["parameters"] += map(self.local_shard, zero.parameters)
            held["gradients"] += zero.gradients()
            held["optimizer"] += [flat for _, flat in zero.groups()]  # the weights that are stepped
        return held

    # ---- parts of parameters, and whole ones

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's part of a parameter under stage 3: flat, the last rank's padded."""
        return parameter.ds_tensor

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's part of a tensor that belongs to a parameter under stage 3."""
        size = parameter.ds_tensor.numel()
        padded = full.new_zeros(size * self.world_size)
        padded[: full.numel()] = full.flatten()
        return padded[self.global_rank * size :][:size].clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns the whole tensor of all ranks' parts under stage 3; every rank must call it."""
        padded = shard.new_empty(shard.numel() * self.world_size)
        dist.all_gather_into_tensor(padded, shard.contiguous())
        return padded[: parameter.ds_numel].view(parameter.ds_shape)

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the whole tensors of a network; every rank must call it."""
        parameters = dict(network.named_parameters(remove_duplicate=False))
        return {
            name: (
                self.unshard(self.local_shard(parameters[name]), parameters[name]) if name in parameters else value
            ).cpu()
            for name, value in network.state_dict().items()
        }

    # ---- checkpoints: whole tensors under plain names

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return self._resumes_from_parts()  # else engines cut what they are given

    def _resumes_from_parts(self) -> bool:
        path = self.lightning_module.trainer.ckpt_path
        return path is not None and Path(path).is_dir() and "deepspeed" in read_rest(Path(path))

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self.sharded_checkpoints:
            return super().save_checkpoint(checkpoint, filepath, storage_options)
        state = self.lightning_module.state_dict()
        others = {name: value for name, value in state.items() if name.partition(".")[0] not in self.engines}
        made_by = {"networks": [*self.engines], "stage": self.stage, "ranks": self.world_size, "others": others}
        with replacing(Path(filepath), self) as folder:
            for name, engine in self.engines.items():
                engine.save_checkpoint(str(folder), tag=name, save_latest=False)
            if self.is_global_zero:
                torch.save(checkpoint | {"deepspeed": made_by}, folder / REST)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        if not self._resumes_from_parts():
            return super().load_checkpoint(checkpoint_path, weights_only)
        rest = read_rest(Path(checkpoint_path))
        made_by, now = rest["deepspeed"], (self.stage, self.world_size)
        if (made_by["stage"], made_by["ranks"]) != now:
            raise RefusedInput(
                f"{checkpoint_path} was written under stage {made_by['stage']} by {made_by['ranks']} ranks, and these"
                f" are stage {now[0]} and {now[1]}: use the same, or begin from its networks with init_from."
            )
        for name, engine in self.engines.items():
            engine.load_checkpoint(str(checkpoint_path), tag=name, load_lr_scheduler_states=False)
        return rest

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if not self._resumes_from_parts():
            return super().load_model_state_dict(checkpoint, strict)
        self.lightning_module.load_state_dict(checkpoint["deepspeed"]["others"], strict=False)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self.sharded_checkpoints:
            return {}
        state = self.lightning_module.state_dict()
        if self.is_sharded:
            for name in self.engines:
                whole = self.full_state_dict(getattr(self.lightning_module, name))
                state |= {f"{name}.{key}": value for key, value in whole.items()}
        return state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        optimizer = getattr(optimizer, "optimizer", optimizer)
        if self.sharded_checkpoints:
            return {}
        if not self.stage or id(optimizer) not in self._names:
            return optimizer.state_dict()
        return self._zero[self._names[id(optimizer)]].state_dict()

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        if self._resumes_from_parts():
            return
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if self.stage:
                self._zero[self._names[id(optimizer)]].load_state_dict(saved, self.shard)
            else:
                optimizer.load_state_dict(saved)
