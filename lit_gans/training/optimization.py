"""Optimization of a GAN's networks: each has its own optimizer and schedule and is frozen in the others' steps.

The names of attributes follow the protocols in `lit_gans.strategies.contracts`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lit_gans.checkpoints.format import FORMAT_KEY, CheckpointFiles, flat, to_plain
from lit_gans.common.errors import RefusedInput
from lit_gans.networks.spectral import SpectralNorm
from lit_gans.strategies.contracts import backward_arguments, block_backward_sync, clips_gradients
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.module_networks import parameters_of
from lit_gans.training.attached import callbacks_of, num_iterations
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.freezing import TrainingOnly
from lit_gans.training.generative import GenerativeModule
from lit_gans.training.optim import Optimizer, arrange_as_weights
from lit_gans.training.plain import count_step, leave_out_profiler, steps_plainly
from lit_gans.training.schedules import Number, Progress, Schedule


@runtime_checkable
class ScalesLosses(Protocol):
    """Precision plugin that may scale losses: Lightning's for one process, DDP and FSDP."""

    scaler: object | None


class OptimizedModule(GenerativeModule):
    """Base class of modules with one optimizer per network and manual optimization.

    `trainer.global_step` counts only the generator's steps.

    Args:
        generator_optimizer, discriminator_optimizer: optimizers of the generator and of each other network.
        clip_gradients: maximum norm of a network's gradient, after unscaling; `None` disables clipping.
        **kwargs: see `ConstructedModule`.
    """

    backpropagated_network: str | None = None  # trained by the current backward

    def __init__(
        self,
        generator_optimizer: Optimizer,
        discriminator_optimizer: Optimizer,
        clip_gradients: float | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.automatic_optimization = False
        self.generator_optimizer = generator_optimizer
        self.discriminator_optimizer = discriminator_optimizer
        self.clip_gradients_to = clip_gradients
        self._optimizers_by_name: dict[str, LightningOptimizer] = {}
        self._schedulers: list[Any] = []
        self._scheduled: list[tuple[LightningOptimizer, Optimizer]] = []  # with more than a learning rate that changes
        self.progress = Progress()  # at the start of the current iteration
        self._total = 0  # number of iterations of the training; 0 if it has no end
        self._images = 0  # number of real images that all ranks have trained on
        self._trainable: dict[str, list[nn.Parameter]] = {}
        self._spectral_norms: list[SpectralNorm] = []
        self._training_only: dict[tuple[str, ...], TrainingOnly] = {}
        self._steps_plainly = False  # without Lightning's hooks around backward and step, which nobody uses

    # ---- one step

    def backpropagate(self, loss: Tensor, network: str) -> None:
        """Adds the gradient of `loss` to the network's parameters."""
        if self._steps_plainly:
            loss.backward()  # type: ignore[no-untyped-call]
            return
        self.backpropagated_network = network
        self.manual_backward(loss, **backward_arguments(self.trainer.strategy, network))
        self.backpropagated_network = None

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks, without synchronizing with the host."""
        mean: Tensor = self.trainer.strategy.reduce(value, reduce_op="mean")
        return mean

    def step_network(self, network: str) -> None:
        """Steps the network's optimizer and clears its gradients."""
        counted = self._optimizers_by_name[network]  # Lightning counts a step of its wrapper
        optimizer = counted.optimizer
        if self._steps_plainly:
            self.on_before_optimizer_step(optimizer)
            optimizer.step()
            if network == "generator":
                count_step(self.trainer)
        elif network == "generator":
            counted.step()
        else:
            self.trainer.strategy.optimizer_step(optimizer, _nothing)
        (optimizer if self._steps_plainly else counted).zero_grad()  # DeepSpeed's engine replaces the wrapper's

    def now(self, number: Number) -> float:
        """Returns the value of a number, which may be a schedule, in the current iteration."""
        return number.at(self.progress) if isinstance(number, Schedule) else number

    def start_iteration(self, iteration: int, num_images: int) -> None:
        """Sets `progress` from the number of the iteration and of this rank's real images in it."""
        self.progress = Progress(iteration, self._images, self._total, num_images * self.trainer.world_size)

    def step_schedules(self) -> None:
        """Steps the schedules of the optimizers of all networks, once per generator iteration."""
        self._images += self.progress.images_per_iteration
        for scheduler in self._schedulers:
            scheduler.step()
        if self._scheduled:
            self._schedule_optimizers(replace(self.progress, iterations=self.progress.iterations + 1))

    def _schedule_optimizers(self, progress: Progress) -> None:
        progress = replace(progress, images=self._images)
        for optimizer, settings in self._scheduled:
            values = settings.scheduled(progress)
            for group in optimizer.optimizer.param_groups:
                group.update(values)

    def _learning_rate_factor(self, iteration: int, schedule: Schedule, total: int) -> float:
        return schedule.at(Progress(iteration, self._images, total))

    def training_only(self, names: tuple[str, ...]) -> TrainingOnly:
        """Returns the context in which only networks of these names are trained."""
        if names not in self._training_only:
            others = [parameter for name, own in self._trainable.items() if name not in names for parameter in own]
            self._training_only[names] = TrainingOnly(others, self._spectral_norms)
        return self._training_only[names]

    def synchronized_only_if(self, last: bool) -> AbstractContextManager[None]:
        """Returns a context in which backward averages gradients over the ranks only in the last microbatch."""
        return nullcontext() if last else block_backward_sync(self.trainer.strategy)

    # ---- Lightning's hooks

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.clip_gradients_to is not None and not clips_gradients(self.trainer.strategy):
            torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), self.clip_gradients_to)

    def setup(self, stage: str) -> None:
        strategy, plugin = self.trainer.strategy, self.trainer.precision_plugin
        if type(strategy.checkpoint_io) is TorchCheckpointIO:
            strategy.checkpoint_io = CheckpointFiles()
        if type(plugin) is MixedPrecision and plugin.scaler is not None:
            # each network gets a copy of the scaler that the user set
            strategy.precision_plugin = NetworkScaling(plugin.device, partial(deepcopy, plugin.scaler))

    def _is_fitting(self) -> bool:
        try:
            return self.trainer.state.fn == TrainerFn.FITTING
        except RuntimeError:  # no trainer
            return False

    def _refuse_other_optimizers(self, checkpoint: dict[str, Any]) -> None:
        """Raises `RefusedInput` if the states of the optimizers do not fit; Lightning drops extra ones silently."""
        how = "resume with the same optimizers, or start from its networks with init_from."
        num = len(checkpoint["optimizer_states"])
        if num != len(self.network_names):
            raise RefusedInput(
                f"the checkpoint has the states of {num} optimizers, this {type(self).__name__} has"
                f" {len(self.network_names)} ({', '.join(self.network_names)}): {how}"
            )
        theirs, ours = (flat(to_plain(dict(each))) for each in (checkpoint.get("hyper_parameters", {}), self.hparams))
        for name in ("generator_optimizer.name", "discriminator_optimizer.name"):
            if name in theirs and theirs[name] != ours.get(name, theirs[name]):
                raise RefusedInput(f"the checkpoint has {name}={theirs[name]}, this run has {ours[name]}: {how}")

    def configure_optimizers(self) -> Any:
        plugin = self.trainer.precision_plugin
        # a gradient scaler must unscale before clipping, but a fused step unscales internally
        scales = isinstance(plugin, ScalesLosses) and plugin.scaler is not None
        fused = not scales and self.device.type in ("cpu", "cuda")
        configured = []
        for name in self.network_names:
            settings = self._settings(name)
            optimizer = settings.build(_trainable(self.get_submodule(name)), fused)
            optimizer.register_load_state_dict_post_hook(arrange_as_weights)
            total = num_iterations(self.trainer) if settings.schedule.needs_total else 0
            if settings.schedule.needs_total and not total:
                raise RefusedInput(
                    f"the schedule of {name} lasts until the last iteration: set trainer.max_steps, or its over=NUMBER."
                )
            factor = partial(self._learning_rate_factor, schedule=settings.schedule, total=total)
            scheduler = LambdaLR(optimizer, factor)
            configured.append({"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "name": name}})
        return configured

    def _settings(self, network: str) -> Optimizer:
        return self.generator_optimizer if network == "generator" else self.discriminator_optimizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[FORMAT_KEY]["images"] = self._images

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._is_fitting() and checkpoint.get("optimizer_states"):
            self.refuse_other_architecture(checkpoint)
            self._refuse_other_optimizers(checkpoint)
        super().on_load_checkpoint(checkpoint)
        self._images = checkpoint.get(FORMAT_KEY, {}).get("images", 0)

    def on_fit_start(self) -> None:
        updates_average = any(each.updates_average for each in callbacks_of(self.trainer, GenerativeCallback))
        if self.averaged_generator is not None and not updates_average:
            rank_zero_warn("no EMA callback: the checkpoint's averaged generator would go stale and is dropped.")
            self.drop_average()

    def on_train_start(self) -> None:
        optimizers = self.optimizers()
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        self._optimizers_by_name = dict(zip(self.network_names, optimizers, strict=True))
        self._schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        self._total = num_iterations(self.trainer)
        settings = [self._settings(name) for name in self.network_names]
        self._scheduled = [pair for pair in zip(optimizers, settings, strict=True) if pair[1].scheduled(Progress())]
        self._schedule_optimizers(Progress(self.trainer.global_step, total=self._total))
        self._trainable = {name: _trainable(self.get_submodule(name)) for name in self.network_names}
        leave_out_profiler(self.trainer)
        self._steps_plainly = steps_plainly(self.trainer, self, OptimizedModule)
        self._spectral_norms = [layer for layer in self.modules() if isinstance(layer, SpectralNorm)]
        self._training_only = {}

    def on_train_end(self) -> None:
        self.gather_generator()  # for `sample` after the fit


def _trainable(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _nothing() -> None:
    """Closure of an optimizer step whose gradients are already computed."""
