"""Sampling from a GAN: latents, labels, image grids, and the copies of the generator that generate the images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.modes import evaluating
from lit_gans.common.noise import mix
from lit_gans.common.precision import tf32
from lit_gans.data.class_frequencies import in_proportion
from lit_gans.data.contracts import Labeled
from lit_gans.training.batch import Batch, refuse_labels
from lit_gans.training.gan import GANDefinition

Weights = Literal["ema", "raw"]
ClassFrequencies = Literal["as in the data", "equal"]


@dataclass
class GeneratorCopies:
    """Copies of the generator outside the module tree, so that they are neither trained nor part of the state dict.

    Attributes:
        averaged: generator with the moving average of the weights.
        full: generator with the trained weights, gathered from all ranks. It is None unless a strategy shards the
            networks.
    """

    averaged: nn.Module | None = None
    full: nn.Module | None = None


class ImageSampler(GANDefinition):
    """Generates images with the trained or the averaged generator of a GAN."""

    _copies: GeneratorCopies

    # ---- samples

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        """Returns the inputs of `decode` for `num` images, by default latents; `data` is the datamodule or None."""
        return self.latents(num, seed)

    def sampling_share(self, rows: Int64[Tensor, " n"], num: int, seed: int, data: Any = None) -> Tensor:
        """Returns some rows of `sampling_inputs`, for example one rank's rows, without reading images of other rows."""
        return self.sampling_inputs(num, seed, data)[rows]

    def num_different(self, num: int, data: Any = None) -> int:
        """Returns `num`, or the number of different inputs that `sampling_inputs` can return, if it is smaller."""
        return num

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Batch:
        """Returns the batch for `generate`: inputs, labels and any additional noise."""
        return {"latents": inputs} if labels is None else {"latents": inputs, "label": labels}

    def sampling_batch_like(self, batch: Batch, seed: int) -> Batch:
        """Returns a batch for `generate` that has the same conditions as a training batch."""
        latents = self.latents(len(batch["image"]), seed).to(batch["image"])
        return self.sampling_batch(latents, batch.get("label"), seed)

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Maps generated images from [-1, 1] to [0, 1]."""
        return images.add(1).div(2).clamp(0, 1)

    def sample(
        self,
        num: int = 64,
        *,
        seed: int = 0,
        label: int | str | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c h w"]:
        """Generates images.

        Args:
            num: number of images.
            seed: seed of the latents. The same seed gives the same latents on any device.
            label: index or name of the class of all images. `None` cycles through all classes.
            weights: `ema` uses the averaged generator, and `raw` uses the trained generator. `None` uses the averaged
                generator if it exists, otherwise the trained generator.
            batch_size: number of images generated at once.

        Returns:
            Images in [0, 1].

        Raises:
            RefusedInput: if a number is less than 1, if the generator has no class `label`, or if averaged weights are
                requested but do not exist.
        """
        refuse_below(1, num=num)
        return self.decode(
            self.sampling_inputs(num, seed),
            labels=self.labels(num, label),
            weights=weights,
            batch_size=batch_size,
            seed=seed,
        )

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Float[Tensor, "n c h w"]:
        """Generates the same images in [0, 1] as `decode`, but keeps their graph: `gan(z)`.

        This method uses the averaged generator if there is one. Training steps call the networks directly instead.

        Args:
            inputs: latents (n, z), or images in [0, 1] if the GAN translates images.
            labels: class of each image, for a conditional generator. `None` cycles through all classes.

        Raises:
            RefusedInput: if the inputs are not valid inputs of the generator.
        """
        self.refuse_inputs(inputs, labels)
        labels = self.labels(len(inputs)) if labels is None else labels
        labels = None if labels is None else labels.to(self.device)
        return self._images([self.sampling_batch(self.to_generator(inputs), labels, mix(0, 0))])

    def predict_step(self, data: Any, batch_idx: int, dataloader_idx: int = 0) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from a batch of `Trainer.predict`, either latents (n, z) or (latents, labels)."""
        inputs, *labels = data if isinstance(data, list | tuple) else [data]
        images: Tensor = self(inputs, *labels[:1])
        return images

    def refuse_inputs(self, inputs: Any, labels: Tensor | None) -> None:
        """Raises `RefusedInput` if inputs of `forward` are not latents, or an unconditional generator gets labels."""
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        if not isinstance(inputs, Tensor) or shape[1:] != (self.latent_dim,) or not inputs.is_floating_point():
            raise RefusedInput(
                f"{type(self).__name__} generates images from latents, a float tensor of shape (n, {self.latent_dim}),"
                f" but got {shape}: use latents(n), or torch.randn(n, {self.latent_dim})."
            )
        if labels is not None and not self.num_classes:
            raise RefusedInput("labels: the model was trained without classes; leave them out.")

    def decode(
        self,
        inputs: Float[Tensor, "n *shape"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from latents or other generator inputs, in evaluation mode and float32.

        Args:
            inputs: latents (n, z).
            labels: class of each image, for a conditional generator. `None` cycles through all classes.
            weights: see `sample`.
            batch_size: number of images generated at once.
            seed: seed of additional noise, such as dropout.

        Raises:
            RefusedInput: if there are no inputs, if they are not floats, if `labels` are not one class of the generator
                for each input, or if averaged weights are requested but do not exist.
        """
        refuse_below(1, batch_size=batch_size)
        if labels is None:
            labels = self.labels(len(inputs))
        elif self.num_classes and len(inputs):
            refuse_labels(labels, len(inputs), self.num_classes)

        def batches() -> Iterator[Batch]:
            for start in range(0, len(inputs), batch_size):
                rows = slice(start, start + batch_size)
                batch_labels = None if labels is None else labels[rows].to(self.device)
                yield self.sampling_batch(self.to_generator(inputs[rows]), batch_labels, mix(seed, start // batch_size))

        return self.decode_batches(batches(), weights)

    @torch.no_grad()
    def decode_batches(self, batches: Iterable[Batch], weights: Weights | None = None) -> Float[Tensor, "n c h w"]:
        """Generates images in [0, 1] from batches for `generate`, in evaluation mode and float32; see `decode`."""
        return self._images(batches, weights)

    def _images(self, batches: Iterable[Batch], weights: Weights | None = None) -> Tensor:
        network = self.sampling_generator(weights)
        with evaluating(network), torch.autocast(self.device.type, enabled=False), tf32(False):
            images = [self.generate(network, batch) for batch in batches]
        if not images:
            raise RefusedInput("there are no inputs to generate images from: pass at least one.")
        return self.to_unit_range(torch.cat(images).float())

    def to_generator(self, inputs: Tensor) -> Tensor:
        """Converts inputs to the generator's device and dtype, which is float64 with precision=64-true.

        Raises:
            RefusedInput: if the inputs are not floats, such as images of uint8, which would have another range.
        """
        if not inputs.is_floating_point():
            raise RefusedInput(
                f"the generator's inputs are a tensor of {inputs.dtype}: expected floats; images / 255 converts images"
                " of uint8 to [0, 1]."
            )
        return inputs.to(self.device, next(self.generator.parameters()).dtype)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Returns `num` latents on the CPU that depend only on `seed`. They are the first of any larger number."""
        generator = torch.Generator().manual_seed(mix(seed, "samples"))
        count = num * self.latent_dim
        # torch draws in groups of 16, and an incomplete last group would get other numbers
        return torch.randn(count + -count % 16, generator=generator)[:count].view(num, self.latent_dim)

    def labels(self, num: int, label: int | str | None = None) -> Int64[Tensor, " n"] | None:
        """Returns the classes of `num` samples, or None if the generator is unconditional.

        All samples have the class `label`. If `label` is None, the samples cycle through all classes.

        Raises:
            RefusedInput: if the generator has no class `label`.
        """
        if label is None:
            return torch.arange(num) % self.num_classes if self.num_classes else None
        if not self.num_classes:
            raise RefusedInput(f"label={label}: the model was trained without classes; leave it out.")
        return torch.full((num,), self.index_of_class(label))

    def index_of_class(self, label: int | str) -> int:
        """Returns the index of the class with an index or a name.

        Raises:
            RefusedInput: if there is no such class, or if a number is the index of one class and the name of another.
        """
        index = None if isinstance(label, str) or not 0 <= label < self.num_classes else int(label)
        if str(label) in self.class_names:
            named = self.class_names.index(str(label))
            if index not in (None, named):
                raise RefusedInput(
                    f"label={label} is the index of one class ({self.class_names[index]}), and the name of another:"
                    f' sample(label="{label}") in Python takes the name.'
                )
            return named
        if index is not None:
            return index
        names = f" ({', '.join(self.class_names)})" if self.class_names else ""
        raise RefusedInput(f"label={label}: the model has the classes 0 to {self.num_classes - 1}{names}.")

    def labels_like(self, data: Any, num: int) -> Int64[Tensor, " n"] | None:
        """Returns the classes of `num` samples that are compared with the images of `data`; None without classes."""
        as_in_data = self.class_frequencies(data) == "as in the data"
        return in_proportion(data.real_labels(), num) if as_in_data else self.labels(num)

    def class_frequencies(self, data: Any) -> ClassFrequencies | None:
        """Returns the frequencies of the classes of `labels_like`; None without classes.

        They are equal if `data` do not have the generator's classes.
        """
        if not self.num_classes:
            return None
        known = isinstance(data, Labeled) and data.num_classes == self.num_classes
        return "as in the data" if known else "equal"

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Float[Tensor, "n c h w"], int]:
        """Returns samples and the number of grid columns.

        For a conditional model, the grid has one column for each class, and `num` is rounded down to full rows.
        """
        columns = math.ceil(math.sqrt(num))
        if 0 < self.num_classes <= num:
            columns, num = self.num_classes, num - num % self.num_classes
        return self.decode(self.sampling_inputs(num, seed, data), seed=seed), columns

    # ---- copies of the generator

    @property
    def averaged_generator(self) -> nn.Module | None:
        """Generator with the moving average of the weights, or `None` if there is no average."""
        return self._copies.averaged

    def used_weights(self, weights: Weights | None = None) -> Weights:
        """Returns which weights `sampling_generator` uses, `ema` or `raw`. For `weights`, see `sample`."""
        return "raw" if weights == "raw" or self._copies.averaged is None else "ema"

    def sampling_generator(self, weights: Weights | None = None) -> nn.Module:
        """Returns the generator that samples and metrics use. For `weights`, see `sample`.

        Raises:
            RefusedInput: if averaged weights are requested but do not exist.
        """
        if weights == "raw" or (weights is None and self._copies.averaged is None):
            return self.generator if self._copies.full is None else self._copies.full
        if self._copies.averaged is None:
            raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
        return self._copies.averaged.to(self.device)
