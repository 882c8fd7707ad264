"""Sampling from a generator: trained or averaged weights, latents that depend only on the seed, cycling classes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import forked, mix
from lit_gans.strategies.contracts import sharding
from lit_gans.training.attached import callbacks_of
from lit_gans.training.batch import Batch, Inputs
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.construction import ConstructedModule

Weights = Literal["ema", "raw"]


@dataclass
class GeneratorCopies:
    """Copies of the generator outside the module tree, with no trainable parameters and no state-dict keys.

    Attributes:
        averaged: generator with the moving average of the weights.
        full: generator with the trained weights, gathered if a strategy shards the networks over the ranks.
    """

    averaged: nn.Module | None = None
    full: nn.Module | None = None


class SamplingModule(ConstructedModule):
    """Base class of modules with a generator to sample from.

    Args:
        **kwargs: see `ConstructedModule`.
    """

    latent_dim: int
    num_classes: int = 0  # number of classes that the generator is conditioned on

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._copies = GeneratorCopies()

    # ---- what a model overrides

    def generate(self, generator: nn.Module, batch: Inputs) -> Tensor:
        """Generates images in [-1, 1] from a batch with `generator`, the trained or the averaged one."""
        images: Tensor = generator(batch["latents"], *self.condition(batch))
        return images

    def condition(self, batch: Inputs) -> tuple[Tensor, ...]:
        """Returns the tensors that the networks are conditioned on, for example labels; none by default."""
        return ()

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        """Returns inputs of `decode` for `num` images: latents by default; `data` is the datamodule, if any."""
        return self.latents(num, seed)

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Inputs:
        """Returns the batch for `generate`: inputs, labels and any further noise."""
        return {"latents": inputs} if labels is None else {"latents": inputs, "label": labels}

    def sampling_batch_like(self, batch: Batch, seed: int) -> Inputs:
        """Returns a batch for `generate` with the conditions of a training batch."""
        latents = self.latents(len(batch["image"]), seed).to(batch["image"])
        return self.sampling_batch(latents, batch.get("label"), seed)

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Maps generated images from [-1, 1] to [0, 1]."""
        return images.add(1).div(2).clamp(0, 1)

    # ---- samples

    def sample(
        self,
        num: int = 64,
        *,
        seed: int = 0,
        label: int | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c s s"]:
        """Generates images.

        Args:
            num: number of images.
            seed: seed of the latents; the same seed gives the same latents on any device.
            label: class of all images of a conditional generator; `None` cycles through all classes.
            weights: `ema` for the averaged generator, `raw` for the trained one; `None` uses the averaged one if it
                exists.
            batch_size: number of images generated at once.

        Returns:
            Images in [0, 1].

        Raises:
            RefusedInput: `num` is below 1, the generator is not conditioned on such a label, or no averaged weights
                exist.
        """
        refuse_below(1, num=num)
        return self.decode(
            self.sampling_inputs(num, seed),
            labels=self.labels(num, label),
            weights=weights,
            batch_size=batch_size,
            seed=seed,
        )

    @torch.no_grad()
    def decode(
        self,
        inputs: Float[Tensor, "n *shape"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> Float[Tensor, "n c s s"]:
        """Generates images in [0, 1] from latents or other generator inputs, in evaluation mode and float32.

        Args:
            inputs: latents (n, z).
            labels: class of each image of a conditional generator; `None` cycles through all classes.
            weights: see `sample`.
            batch_size: number of images generated at once.
            seed: seed of further noise, such as dropout.
        """
        labels = self.labels(len(inputs)) if labels is None else labels
        network = self.sampling_generator(weights)
        was_training = network.training
        network.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):
                images = [
                    self.generate(network, self.sampling_batch(some, some_labels, mix(seed, index)))
                    for index, (some, some_labels) in enumerate(self._on_device(inputs, labels, batch_size))
                ]
        finally:
            network.train(was_training)
        return self.to_unit_range(torch.cat(images).float())

    def _on_device(
        self, inputs: Tensor, labels: Tensor | None, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        dtype = next(self.generator.parameters()).dtype  # float64 with precision=64-true
        for start in range(0, len(inputs), batch_size):
            rows = slice(start, start + batch_size)
            yield inputs[rows].to(self.device, dtype), None if labels is None else labels[rows].to(self.device)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Returns `num` latents on the CPU that depend only on `seed`."""
        generator = torch.Generator().manual_seed(mix(seed, "samples"))
        return torch.randn(num, self.latent_dim, generator=generator)

    def labels(self, num: int, label: int | None = None) -> Int64[Tensor, " n"] | None:
        """Returns the classes of `num` samples: `label`, or all classes in turn; None for a generator without classes.

        Raises:
            RefusedInput: the generator is not conditioned on such a label.
        """
        if label is None:
            return torch.arange(num) % self.num_classes if self.num_classes else None
        if not self.num_classes:
            raise RefusedInput(f"label={label}: the model was trained without classes; leave it out.")
        if not 0 <= label < self.num_classes:
            raise RefusedInput(f"label={label}: the model knows the classes 0 to {self.num_classes - 1}.")
        return torch.full((num,), label)

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Float[Tensor, "n c s s"], int]:
        """Returns samples and the number of grid columns.

        A conditional model has one column for each class, and `num` is rounded down to full rows.
        """
        columns = math.ceil(math.sqrt(num))
        if 0 < self.num_classes <= num:
            columns, num = self.num_classes, num - num % self.num_classes
        return self.decode(self.sampling_inputs(num, seed, data), seed=seed), columns

    # ---- copies of the generator

    @property
    def averaged_generator(self) -> nn.Module | None:
        """Generator with averaged weights, or `None` if there is no average."""
        return self._copies.averaged

    def sampling_generator(self, weights: Weights | None = None) -> nn.Module:
        """Returns the generator that samples and metrics use; for `weights` see `sample`.

        Raises:
            RefusedInput: averaged weights are requested but do not exist.
        """
        if weights == "raw" or (weights is None and self._copies.averaged is None):
            return self.generator if self._copies.full is None else self._copies.full
        if self._copies.averaged is None:
            raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
        return self._copies.averaged.to(self.device)

    def start_average(self) -> nn.Module:
        """Creates and returns the averaged generator, a frozen copy of the generator in evaluation mode."""
        self._copies.averaged = self._full_generator()
        return self._copies.averaged

    def drop_average(self) -> None:
        """Drops the averaged generator."""
        self._copies.averaged = None

    def gather_generator(self) -> None:
        """Gathers the weights for sampling if a strategy shards the networks; every rank must call it."""
        if sharding(self._strategy) is None:
            return
        for callback in callbacks_of(self.trainer, GenerativeCallback):
            callback.gather_average(self)
        self._copies.full = self._full_generator()

    def _full_generator(self) -> nn.Module:
        """Returns a frozen copy of the generator in evaluation mode; every rank must call it if it is sharded."""
        strategy = sharding(self._strategy)
        if strategy is None:
            return copy.deepcopy(self.generator).eval().requires_grad_(False)
        with forked():
            generator = self.configure_networks()["generator"]
        generator.load_state_dict(strategy.full_state_dict(self.generator))
        return generator.to(self.device).eval().requires_grad_(False)

    @property
    def _strategy(self) -> object | None:
        try:
            return self.trainer.strategy
        except RuntimeError:  # no trainer is attached
            return None
