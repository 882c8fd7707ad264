"""One DeepSpeed engine for each network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from lit_gans.common._compat.deepspeed import stored_gradients, zero3_shard
from lit_gans.common._compat.lightning import restore_toggles, run_step_hooks, run_toggles_in
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import contracts
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.binding import Bind
from lit_gans.strategies.deepspeed import settings as deepspeed_settings
from lit_gans.strategies.deepspeed.checkpoints import DeepSpeedCheckpoints
from lit_gans.strategies.deepspeed.engine_module import engine_module, prepare_stage_3, refuse_scalars, run_backward
from lit_gans.strategies.deepspeed.zero import ZeroOptimizer, showing_parameters
from lit_gans.strategies.module_networks import Network, network_named, stepped_network, trained_network


class NetworkDeepSpeed(DeepSpeedCheckpoints, NetworkStrategy, DDPStrategy):
    """One DeepSpeed engine for each network of a module with several networks and manual optimization.

    Lightning's own strategy has one engine and accepts one optimizer. Here each network with an optimizer gets its own
    engine; the module computes with its unwrapped networks. A backward trains the network whose parameters require
    gradients: freeze the others before their forward. If several require gradients and each has its own loss, use
    `manual_backward(loss, network=NAME)`. Stages 1 and 2 store the gradients of one backward only: if there are several
    before a step, run all but the last in `with trainer.strategy.block_backward_sync():`.

    Stage 0 replicates everything; stage 1 shards the optimizer states over the ranks (ZeRO: Rajbhandari et al. 2020),
    stage 2 also the gradients, and stage 3 also the parameters. Checkpoints are single files with full tensors,
    including optimizer states, under the plain names: they load on one CPU, and training resumes from them under any
    strategy and number of ranks.

    The engine clips gradients to the module's `clip_gradients_to` or the `gradient_clipping` of `config`, never to
    DeepSpeed's default. From stage 1 on, clipping the gradients of the parameters has no effect.

    Args:
        stage: stage of ZeRO.
        offload_optimizer: whether to store optimizer states and step on the CPU; requires stage 1, 2 or 3.
        config: DeepSpeed's own settings, or the path of a JSON file with them; its keys override the arguments.
        sharded_checkpoints: whether each rank writes its shards in a folder in DeepSpeed's own format. Its networks
            load on one CPU; training resumes from it only under the same stage and number of ranks.
        bind: `cores` gives each process of a machine cores of its own, and as many threads; Linux only.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: backend of torch.distributed; null uses nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a setting, module or precision is not supported.
    """

    clips_gradients = True

    def __init__(
        self,
        *,
        stage: Literal[0, 1, 2, 3] = 2,
        offload_optimizer: bool = False,
        config: dict[str, Any] | str | None = None,
        sharded_checkpoints: bool = False,
        bind: Bind = "none",
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        super().__init__(timeout=timeout, bind=bind, process_group_backend=process_group_backend)
        self.config = {"zero_optimization": {}} | deepspeed_settings.read(config)
        self.config["zero_optimization"] = {"stage": stage} | self.config["zero_optimization"]
        if offload_optimizer:
            self.config["zero_optimization"].setdefault("offload_optimizer", {"device": "cpu"})
        self.sharded_checkpoints = sharded_checkpoints
        self.stage: int = self.config["zero_optimization"]["stage"]
        deepspeed_settings.refuse(self.config, self.stage, sharded_checkpoints)
        self.engines: dict[str, Any] = {}
        self._reduced: set[str] = set()  # networks whose gradients are ready for a step
        self._steps = False  # whether an engine is currently stepping
        self._zero: dict[str, ZeroOptimizer] = {}

    @property
    def is_sharded(self) -> bool:
        """Whether no rank has a full network."""
        return self.stage == 3 and bool(self.engines)

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(
                f"precision={precision} does not work with strategy=deepspeed, whose engines compute in float32, or in"
                " bfloat16 by autocast: use precision=fp32 or bf16, or strategy=ddp."
            )
        penalized = contracts.penalized_networks(module)
        if self.stage == 3 and penalized:
            raise RefusedInput(
                f"ZeRO stage 3 frees the weights of {', '.join(penalized)} before its gradient penalty is"
                " differentiated again: use trainer.strategy.stage=2, or strategy=fsdp."
            )

    def configure_ddp(self) -> None:
        """Does nothing, since engines need the optimizers."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        deepspeed_settings.refuse_automatic(self.lightning_module)
        super().setup_optimizers(trainer)
        module = self.lightning_module
        deepspeed = deepspeed_settings.load(self.root_device.type)
        for network in self.networks.values():
            refuse_scalars(network, module)
            self._make_engine(deepspeed, network)
        self.limit_waiting()  # in DeepSpeed's own groups too
        if self.stage:
            run_toggles_in(module, partial(showing_parameters, self._zero))

    def _make_engine(self, deepspeed: Any, network: Network) -> None:
        name, optimizer, module = network.name, network.optimizer, engine_module(network)
        zero = self._zero[name] = ZeroOptimizer(optimizer, self.stage)
        module.to(memory_format=torch.contiguous_format)  # DeepSpeed supports no other layout
        engine = deepspeed.initialize(model=module, optimizer=optimizer, config=self._config_of(module))[0]
        engine.set_gradient_accumulation_boundary(True)
        self.engines[name] = zero.engine = engine
        if self.stage:
            optimizer.register_step_pre_hook(self._refuse_lone_step)
        if self.stage == 3:
            self._hooks += prepare_stage_3(network, module, self.positions.note)

    def setup_precision_plugin(self) -> None:
        super().setup_precision_plugin()
        if not self.stage or not self.engines:
            return
        # patched on the instances, as neither has a hook: the optimizer has flat shards now, whose gradients belong to
        # ZeRO, and what the plugin would clip is not what an engine steps with
        wrappers = self.lightning_module.optimizers()
        for wrapper in wrappers if isinstance(wrappers, list) else [wrappers]:
            wrapper.zero_grad = partial(self._zero_grad, stepped_network(self.networks, wrapper).name)
        self.precision_plugin.clip_gradients = self._refuse_clipping

    def _zero_grad(self, name: str, set_to_none: bool = True) -> None:
        self._forget(name)
        self.engines[name].optimizer.zero_grad(set_to_none)

    def _forget(self, name: str) -> None:
        self._reduced.discard(name)
        if self.stage == 3:  # which would step once more with the last gradients of what a backward does not reach
            for gradients in stored_gradients(self.engines[name], self.stage):
                gradients.zero_()

    def _refuse_clipping(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        raise RefusedInput(
            f"self.clip_gradients has no effect under ZeRO stage {self.stage}, whose engine clips the gradients that it"
            ' steps with: use NetworkDeepSpeed(config={"gradient_clipping": VALUE}).'
        )

    def _refuse_lone_step(self, optimizer: torch.optim.Optimizer, *args: Any) -> None:
        if not self._steps:
            raise RefusedInput(
                f"a torch optimizer has no gradients of its own under ZeRO stage {self.stage}: step the optimizer that"
                " self.optimizers() returns."
            )

    def _config_of(self, network: nn.Module) -> dict[str, Any]:
        num_parameters = sum(parameter.numel() for parameter in network.parameters())
        clip = contracts.clip_gradients_to(self.lightning_module)
        return deepspeed_settings.engine_config(self.config, self.stage, num_parameters, clip)

    def teardown(self) -> None:
        restore_toggles(self.lightning_module)
        if self.is_sharded and not self._failed:
            for network in self.networks.values():
                for parameter in network.parameters:
                    parameter.data = self.unshard(self.local_shard(parameter), parameter).to(self.root_device)
        for engine in self.engines.values():
            engine.destroy()
        self.engines.clear()
        self._zero.clear()
        self._reduced.clear()  # an error may have ended the step
        super().teardown()

    # ---- a step

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *args: Any,
        network: str | None = None,
        retain_graph: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        trained = trained_network(self.networks) if network is None else network_named(self.networks, network)
        others = any(other.trains for other in self.networks.values() if other is not trained)
        inputs = [parameter for parameter in trained.parameters if parameter.requires_grad] if others else None
        engine = self.engines[trained.name]
        if engine.is_gradient_accumulation_boundary():
            if self.stage in (1, 2):
                self._refuse_second(trained.name)
            self.note_backward(trained)
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        run_backward(engine, loss, inputs, self.stage, retain_graph)
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def _refuse_second(self, name: str) -> None:
        if name in self._reduced:
            raise RefusedInput(
                f"two backwards of {name} before its step, but ZeRO stage {self.stage} would store the gradients of the"
                " last one only: add up the losses, or put all but the last into"
                " `with self.trainer.strategy.block_backward_sync():`."
            )
        self._reduced.add(name)

    def optimizer_step(
        self,
        optimizer: torch.optim.Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | nn.Module | None = None,
        **kwargs: Any,
    ) -> Any:
        result = closure()
        run_step_hooks(self, model or self.lightning_module, optimizer)
        name = self.note_step(optimizer)
        self._steps = True
        try:
            self.engines[name].step()
        finally:
            self._steps = False
        self._forget(name)
        return result

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulates gradients; the next backward outside the context reduces their sum for a step."""
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
                held["parameters"] += map(zero3_shard, zero.parameters)
            held["gradients"] += stored_gradients(zero.engine, self.stage)
            held["optimizer"] += [flat for _, flat in zero.groups()]  # the weights that are stepped
        return held
