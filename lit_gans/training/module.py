"""Base class of all GANs, with their settings and the hooks by which Lightning trains, saves and loads them.

`gan.py` contains the methods that a GAN can override, `step.py` contains the iteration, and `sampling.py` contains the
generation of samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from lit_gans.checkpoints.format import (
    EMA_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    PLAIN_ARGUMENTS,
    CheckpointFiles,
    class_path,
    from_plain,
    is_plain,
    read_checkpoint,
    to_plain,
)
from lit_gans.common._compat.lightning import begin_epoch_after_resume, reopen_epoch, skip_empty_hooks, use_by_default
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.device import on_cpu
from lit_gans.common.errors import RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.identity import digest_of_object, is_versioned
from lit_gans.common.noise import forked, mix
from lit_gans.common.size import Size, as_size
from lit_gans.data.class_names import class_names_of
from lit_gans.strategies.base import NetworkStrategy, sharding
from lit_gans.strategies.grad_scaling import NetworkScaling, scale_each_network
from lit_gans.training.augmentation import Augmentations, Augmenter
from lit_gans.training.backend import Backend
from lit_gans.training.batch import doubt_about_range, prepare_batch, refuse_data
from lit_gans.training.callback import (
    GenerativeCallback,
    attached_trainer,
    callbacks_of,
    data_of,
    num_iterations,
    reads_every_loss,
)
from lit_gans.training.construction import constructor_arguments
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.finite import FiniteCheck
from lit_gans.training.hyperparameters import log_hyperparameters
from lit_gans.training.optim import OptimizerConfig, OptionScheduler, arrange_as_weights, keep_implementation
from lit_gans.training.refusals import refuse_arguments, refuse_lost_hooks, refuse_trainer
from lit_gans.training.resuming import (
    changed_settings,
    claim_states,
    of_class,
    refuse_other_architecture,
    refuse_other_optimizers,
    warn_if_code_changed,
)
from lit_gans.training.sampling import GeneratorCopies, ImageSampler
from lit_gans.training.schedules import Number, Progress, refuse_weights
from lit_gans.training.step import TrainingStep, trainable
from lit_gans.training.trainer_backend import TrainerBackend
from lit_gans.training.transfer import freeze_finest

logger = logging.getLogger(__name__)


class AdversarialModule(ImageSampler):
    """Trains a generator against its discriminators. One `training_step` is one generator iteration.

    The loader yields batch_size x n_critic x accumulate_gradients images. `training_step` splits these images over
    n_critic discriminator steps. Each discriminator step uses new real images and new latents. One generator step
    follows. `trainer.global_step` counts generator iterations.

    The constructor of a subclass builds the networks inside `with self.building():`, so that their weights depend on
    `seed` alone. The constructor assigns the networks to the attribute `generator`, and to one attribute for each name
    in `discriminator_names`.

    A checkpoint contains `state_dict` (`generator.…`, `discriminator.…`), `generator_ema` (averaged generator), and
    `lit_gans` with the format version and the class.

    Args:
        image_size: height and width of the images: one number for square images, or a list [height, width].
        channels: number of channels of the images.
        latent_dim: length of a latent.
        n_critic: number of discriminator steps per iteration.
        generator_batch_multiple: ratio of the number of generated images in a generator step to the number of real
            images in a discriminator step.
        accumulate_gradients: number of microbatches per step. The step uses the mean of their gradients.
        clip_gradients: maximum norm of a network's gradient, after unscaling. null disables clipping.
        r1_gamma: weight of the R1 penalty on every discriminator (Mescheder et al. 2018). It can be a schedule. 0
            disables R1. For batch norm, see `r1_penalty`.
        r2_gamma: weight of the R2 penalty, which is R1 at the generated images. It can be a schedule. 0 disables R2.
        r1_every: R1 and R2 are applied every `r1_every` iterations, with `r1_every` times their weight (Karras et al.
            2020, B). They are part of the iteration's optimizer step, so learning rate and betas need no correction.
        share_scores: whether R1 and R2 reuse the scores of the losses and differentiate them with respect to the images
            before augmentation. This saves a forward pass, and the penalty is computed in the training precision. If
            False, each penalty runs its own forward pass in float32 on the augmented images.
        generator_optimizer: settings of the generator's optimizer.
        discriminator_optimizer: settings of the discriminators' optimizers. Each discriminator has its own optimizer.
        channels_last: whether networks and images use the channels-last memory layout, which makes convolutions faster
            on CPU and CUDA. Under FSDP and DeepSpeed, only images and feature maps have this layout.
        tf32: whether training steps use TF32 (10 bits of the mantissa) on CUDA where they compute in float32. Under
            bf16 and fp16, they always do. Samples and metrics never do.
        compile: whether to compile the networks in place. Forward passes that a gradient penalty differentiates twice
            run uncompiled.
        freeze_discriminator: number of convolutions to freeze in each discriminator, from the input layer on, for
            fine-tuning (Mo et al. 2020).
        diffaugment: augmentations of the discriminators' input, both real and generated images. They help on small
            datasets (Zhao et al. 2020).
        augmentation: pipeline of augmentations of the discriminators' input, both real and generated images. Its
            probability is scheduled or adaptive (Karras et al. 2020). null disables it.
        seed: seed of the weights, the latents and all other random numbers of the training.

    Raises:
        RefusedInput: if a value is out of range.
    """

    _unsaved: tuple[str, ...]  # names of the constructor's arguments that a checkpoint cannot contain
    _step: TrainingStep  # created at the start of each training run
    _logs_every_loss: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_lost_hooks(cls, AdversarialModule)
        for parent in cls.__mro__[: cls.__mro__.index(AdversarialModule)]:  # mixins, too: their arguments are stored
            if "__init__" in vars(parent):
                parent.__init__ = converts_arguments(parent.__init__)  # type: ignore[misc]

    @converts_arguments
    def __init__(
        self,
        *,
        image_size: Size = 64,
        channels: int = 3,
        latent_dim: int = 100,
        n_critic: int = 1,
        generator_batch_multiple: int = 1,
        accumulate_gradients: int = 1,
        clip_gradients: float | None = None,
        r1_gamma: Number = 0.0,
        r2_gamma: Number = 0.0,
        r1_every: int = 1,
        share_scores: bool = False,
        generator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999)),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999)),
        channels_last: bool = True,
        tf32: bool = False,
        compile: bool = False,
        freeze_discriminator: int = 0,
        diffaugment: tuple[Augmentation, ...] = (),
        augmentation: Augmenter | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        refuse_below(1, latent_dim=latent_dim, n_critic=n_critic, r1_every=r1_every)
        refuse_below(1, generator_batch_multiple=generator_batch_multiple, accumulate_gradients=accumulate_gradients)
        if self.generator_first and generator_batch_multiple > 1:
            raise RefusedInput(
                f"generator_batch_multiple={generator_batch_multiple}: the generator of {type(self).__name__} steps"
                " first, on the same images as the discriminators; use 1."
            )
        refuse_below(0, freeze_discriminator=freeze_discriminator)
        refuse_not_positive(clip_gradients=clip_gradients)
        refuse_weights(r1_gamma=r1_gamma, r2_gamma=r2_gamma)
        arguments, passed = constructor_arguments(self)
        plain = {name: value for name, value in to_plain(arguments).items() if is_plain(value)}
        self.save_hyperparameters(plain, logger=False)
        self._unsaved = tuple(name for name in arguments if name in passed and name not in plain)
        self.automatic_optimization = False
        self.image_size, self.channels, self.latent_dim = as_size(image_size), channels, latent_dim
        self.n_critic, self.generator_batch_multiple = n_critic, generator_batch_multiple
        self.accumulate_gradients, self.clip_gradients_to = accumulate_gradients, clip_gradients
        self.r1_gamma, self.r2_gamma, self.r1_every, self.share_scores = r1_gamma, r2_gamma, r1_every, share_scores
        self.generator_optimizer, self.discriminator_optimizer = generator_optimizer, discriminator_optimizer
        self.freeze_discriminator = freeze_discriminator
        self.channels_last, self.tf32, self.compile_networks, self.seed = channels_last, tf32, compile, seed
        self.augmentations = Augmentations(tuple(diffaugment), augmentation)
        self.finite = FiniteCheck((*self.discriminator_names, "generator"))
        self.losses: dict[str, Tensor] = {}  # loss of each network in the last iteration, on the device
        self.terms = {}
        self.progress, self.backend = Progress(), Backend({})
        self._copies = GeneratorCopies()
        self._is_built = False

    @contextmanager
    def building(self) -> Iterator[None]:
        """Context manager for the part of a constructor that builds the networks.

        Inside, weights depend on `seed` alone and not on the state of the global random generators. On exit, the memory
        layout of the networks is set, and the networks are compiled.
        """
        with forked():
            torch.manual_seed(mix(self.seed, "networks"))
            yield
        self._finish_networks()

    def _finish_networks(self) -> None:
        for name in self.network_names:
            network = self.get_submodule(name)
            if self.channels_last:
                network.to(memory_format=torch.channels_last)
            if self.compile_networks:
                network.compile()  # in place, so that state-dict keys do not change
            if self.freeze_discriminator and name != "generator":
                freeze_finest(network, self.freeze_discriminator)
        self._is_built = True

    def rebuilt(self) -> AdversarialModule:
        """Returns a new, untrained module that is constructed with the same arguments.

        Raises:
            RefusedInput: if an argument is an object, such as a network, which the new module would share.
        """
        self._refuse_unsaved()
        with forked():
            return type(self)(**{name: from_plain(value) for name, value in self._saved_arguments().items()})

    def _saved_arguments(self) -> dict[str, Any]:
        """Returns the hyperparameters that a checkpoint contains. A subclass may have called `save_hyperparameters`."""
        return {name: value for name, value in to_plain(dict(self.hparams)).items() if is_plain(value)}

    def _refuse_unsaved(self) -> None:
        if self._unsaved:
            raise RefusedInput(
                f"{type(self).__name__} cannot be built anew, because {' and '.join(self._unsaved)} cannot be stored:"
                f" {PLAIN_ARGUMENTS}"
            )

    # ---- the training

    def training_step(self, data: Any, batch_idx: int) -> None:
        self.losses = self._step(data, self.trainer.global_step)
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector; 0 logs nothing
        iteration = self.trainer.global_step
        is_written = every > 0 and iteration % every == 0
        # logging takes as long as the backward pass of a small network
        if is_written or iteration == self.progress.total or self._logs_every_loss:
            self._log_losses(is_written)

    def _log_losses(self, is_written: bool) -> None:
        losses = {f"loss/{name}": loss for name, loss in self.losses.items()}
        logged = self.augmentations.log(self.progress) | losses | self.terms
        if is_written and self.loggers:  # Lightning would read each value of its own
            logged = on_cpu(logged)
        # Lightning converts the progress bar's values to numbers whenever a logged value is read, and this synchronizes
        # with the device. This package's progress bar reads the tensors instead.
        bar = self.trainer.progress_bar_callback
        self.log_dict(logged, prog_bar=bar is not None and not isinstance(bar, GenerativeCallback))

    # ---- optimizers

    def configure_optimizers(self) -> Any:
        # `NetworkScaling` unscales gradients before clipping, but any other scaler lets a fused optimizer unscale them
        plugin = self.trainer.precision_plugin
        unscales_late = getattr(plugin, "scaler", None) is not None and not isinstance(plugin, NetworkScaling)
        optimizers = (self.generator_optimizer, self.discriminator_optimizer)
        if any(settings.schedule.needs_total for settings in optimizers):
            self.progress = replace(self.progress, total=num_iterations(self.trainer))
        return [
            {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "name": name}}
            for name, optimizer, schedule in self._new_optimizers(fused=not unscales_late)
        ]

    def new_backend(self, num_iterations: int = 0) -> Backend:
        """Returns a backend in plain PyTorch, with a new optimizer for each network, to train without Lightning.

        Args:
            num_iterations: number of iterations of the training, which some schedules need. 0 if it is unknown.
        """
        if self.progress.images_seen:
            self.reset_progress()
        self.progress = replace(self.progress, total=num_iterations)
        self.begin_training()
        names, optimizers, schedules = zip(*self._new_optimizers(fused=True), strict=True)
        return Backend(dict(zip(names, optimizers, strict=True)), schedules, self.clip_gradients_to)

    def _new_optimizers(self, fused: bool) -> Iterator[tuple[str, torch.optim.Optimizer, OptionScheduler]]:
        """Yields the name of each network, its optimizer, and the schedule of the optimizer's settings."""
        for name in self.network_names:
            settings = self.generator_optimizer if name == "generator" else self.discriminator_optimizer
            weights = trainable(self.get_submodule(name))
            optimizer = settings.build(weights, fused and self.device.type in ("cpu", "cuda"))
            optimizer.register_load_state_dict_pre_hook(keep_implementation)
            optimizer.register_load_state_dict_post_hook(arrange_as_weights)
            yield name, optimizer, OptionScheduler(optimizer, settings, self._progress_at)

    def _progress_at(self, iteration: int) -> Progress:
        return Progress(iteration, self.progress.images_seen, self.progress.total)

    def reset_progress(self) -> None:
        """Resets what depends on the images of an earlier training, when a training begins that is not resumed."""
        self.progress = Progress()
        self.augmentations.state.copy_(self.augmentations.new_state())

    # ---- Lightning's hooks

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.clip_gradients_to is not None:  # `self.clip_gradients` would refuse fused optimizers in bf16-mixed
            self.trainer.precision_plugin.clip_grad_by_norm(optimizer, self.clip_gradients_to)

    def configure_callbacks(self) -> Sequence[Callback]:
        refuse_arguments(self, self.trainer)  # this hook runs before Lightning checks the Trainer's arguments
        return []

    def setup(self, stage: str) -> None:
        refuse_trainer(self, self.trainer)
        if not self._is_built:  # the constructor did not use `building`
            self._finish_networks()
        strategy = self.trainer.strategy
        use_by_default(strategy, CheckpointFiles())
        scale_each_network(strategy)
        if stage == "fit":
            names = class_names_of(data_of(self.trainer))
            if names and self.num_classes:
                self.class_names = names
            self.begin_training()

    def on_fit_start(self) -> None:
        self._drop_stale_average(self.trainer)
        log_hyperparameters(self.trainer, self)

    def on_train_start(self) -> None:
        begin_epoch_after_resume(self.trainer)
        skip_empty_hooks(callbacks_of(self.trainer, Callback))
        is_resumed = self.trainer.ckpt_path is not None
        forgets = not is_resumed and self.trainer.global_step == 0 and self.progress.images_seen > 0
        if forgets:
            self.reset_progress()
        self.progress = replace(self.progress, total=num_iterations(self.trainer))
        if is_resumed or forgets:  # the optimizers were configured with other options
            for config in self.trainer.lr_scheduler_configs:
                if isinstance(config.scheduler, OptionScheduler):
                    config.scheduler.configure()
        if self._sharding is not None:
            self._refuse_unsaved()
        self.losses, self.terms = {}, {}
        self._logs_every_loss = reads_every_loss(self.trainer)
        self.augmentations.state = self.augmentations.state.to(self.device)
        self._step = TrainingStep(self, TrainerBackend(self))
        self._step.refuse_divergence(self.trainer.global_step)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.losses:  # check the first batch only, because reading its range synchronizes with the device
            return
        refuse_data(batch, self.channels)
        self.refuse_batch(prepare_batch(batch, channels_last=False))
        doubt = doubt_about_range(batch)
        if doubt is not None and self.trainer.is_global_zero:
            logger.warning(doubt)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.trainer.should_stop:  # a callback has just requested the stop, and Lightning logs the last iteration
            self._log_losses(is_written=True)

    def on_train_end(self) -> None:
        self.gather_generator()  # so that `sample` works after the fit
        self.finite.start({})

    # ---- checkpoints

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path,
        map_location: torch.device | str | dict[str, str] | Callable[..., Any] | None = None,
        *,
        strict: bool = True,
        weights_only: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Loads a module from a checkpoint, ready for `sample`.

        Args:
            checkpoint_path: path of a checkpoint or of a run's folder. From a folder, the best checkpoint is loaded, or
                else the last checkpoint.
            map_location: device of the module, or a function or mapping of devices, see `torch.load`. None means CPU.
            strict, weights_only: arguments of Lightning's method. Loading is always strict and never executes code.
            **kwargs: settings that override the checkpoint's settings.

        Raises:
            RefusedInput: if the file is missing or damaged, or belongs to another class or architecture.
        """
        remaps = callable(map_location) or isinstance(map_location, dict)
        checkpoint = read_checkpoint(checkpoint_path, map_location if remaps else "cpu")
        with of_class(checkpoint, cls):
            module = cls.from_checkpoint(checkpoint, **kwargs)
        if remaps:
            map_location = next(iter(checkpoint["state_dict"].values())).device
        return module.to(map_location or "cpu")

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], **kwargs: Any) -> Any:
        """Returns the module of a checkpoint that is already in memory, see `load_from_checkpoint`.

        Before loading, checks that the networks built from the checkpoint's settings match the checkpoint's weights.
        """
        if not checkpoint["state_dict"]:
            raise RefusedInput("the checkpoint holds no networks.")
        missing = [name for name in checkpoint.get(FORMAT_KEY, {}).get("unsaved", ()) if name not in kwargs]
        if missing:
            raise RefusedInput(
                f"the checkpoint does not contain {' and '.join(missing)}, which {cls.__name__} was built with: use"
                f" {cls.__name__}.load_from_checkpoint(PATH, {missing[0]}=...), or {PLAIN_ARGUMENTS}"
            )
        settings = {name: from_plain(value) for name, value in checkpoint["hyper_parameters"].items()} | kwargs
        checkpoint = checkpoint | {"hyper_parameters": to_plain(settings)}
        module = cls(**settings)
        module.on_load_checkpoint(checkpoint)
        module.load_state_dict(checkpoint["state_dict"])
        return module

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        mark = {
            "format_version": FORMAT_VERSION,
            "class_path": class_path(type(self)),
            "images": self.progress.images_seen,
        }
        if not is_versioned(type(self)):
            mark["code_sha256"] = digest_of_object(type(self))
        if self._unsaved:
            mark["unsaved"] = [*self._unsaved]
        if self.class_names:
            mark["class_names"] = [*self.class_names]
        checkpoint["hyper_parameters"] = self._saved_arguments()
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | mark
        if "loops" in checkpoint:  # the checkpoint is saved by a Trainer
            reopen_epoch(checkpoint)
        self.gather_generator()
        if self.averaged_generator is not None:
            state = self.averaged_generator.state_dict()
            checkpoint[EMA_KEY] = {"format_version": FORMAT_VERSION, "state_dict": state}
        if self.augmentations.adapts:
            checkpoint[FORMAT_KEY]["augmentation"] = self.mean_over_ranks(self.augmentations.state.clone()).cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other_architecture(self, checkpoint)
        trainer = attached_trainer(self)
        if trainer is not None:
            claim_states(trainer, checkpoint)
        fits = trainer is not None and trainer.state.fn == TrainerFn.FITTING
        if fits and checkpoint.get("optimizer_states"):
            refuse_other_optimizers(self, self.network_names, checkpoint)
        changed = changed_settings(self, checkpoint)
        if changed:
            rank_zero_warn(f"the checkpoint was trained with different settings: {changed}.")
        warn_if_code_changed(type(self), checkpoint)
        if EMA_KEY in checkpoint:
            self.start_average().load_state_dict(checkpoint[EMA_KEY]["state_dict"])
            if trainer is not None and fits:  # FSDP and DeepSpeed load checkpoints after `on_fit_start`
                self._drop_stale_average(trainer)
        ours = checkpoint.get(FORMAT_KEY, {})
        self.class_names = self.class_names or tuple(map(str, ours.get("class_names", ())))
        self.progress = replace(self.progress, images=ours.get("images", 0), images_per_iteration=0)
        self.augmentations.state.copy_(ours.get("augmentation", self.augmentations.new_state()))

    # ---- copies of the generator

    def start_average(self) -> nn.Module:
        """Creates and returns the averaged generator, a frozen copy of the generator in evaluation mode."""
        self._copies.averaged = self._full_generator()
        return self._copies.averaged

    def _drop_stale_average(self, trainer: Trainer) -> None:
        """Drops an averaged generator that no callback updates in this training, so that it is never measured."""
        callbacks = callbacks_of(trainer, GenerativeCallback)
        if self.averaged_generator is None or any(callback.updates_average for callback in callbacks):
            return
        rank_zero_warn(
            "the checkpoint has an averaged generator, but there is no EMA callback to update it: it is dropped."
        )
        self._copies.averaged = None

    def gather_generator(self) -> None:
        """Gathers the weights for sampling if a strategy shards the networks; every rank must call it.

        This method is called before every save, sample and measurement. It first raises `FloatingPointError` if the
        training has diverged, so that diverged weights are never saved, sampled or measured.
        """
        self.finite.raise_if_diverged()
        if self._sharding is None:
            return
        for callback in callbacks_of(self.trainer, GenerativeCallback):
            callback.gather_average(self)
        self._copies.full = self._full_generator()

    def _full_generator(self) -> nn.Module:
        """Returns a frozen copy of the generator in evaluation mode.

        Under sharding, every rank must call this method.
        """
        if self._sharding is None:
            return deepcopy(self.generator).eval().requires_grad_(False)
        generator = self.rebuilt().generator
        generator.load_state_dict(self._sharding.full_state_dict(self.generator))
        return generator.to(self.device).eval().requires_grad_(False)

    @property
    def _sharding(self) -> NetworkStrategy | None:
        """Strategy that shards the networks over the ranks, or None."""
        trainer = attached_trainer(self)
        return None if trainer is None else sharding(trainer.strategy)
