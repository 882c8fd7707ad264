"""What every generative module shares: networks by name, averaged weights, samples, checkpoints."""

from __future__ import annotations

import copy
import inspect
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from lit_gans.checkpoints.format import (
    EMA_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    class_path,
    constructor_arguments,
    flat,
    from_plain,
    read_checkpoint,
    to_plain,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import forked, mix
from lit_gans.training.callback import GenerativeCallback

Weights = Literal["ema", "raw"]


class GenerativeModule(LightningModule):
    """Plain networks under their own names, built once, lazily, from the module's own seed.

    A checkpoint holds `state_dict` (`generator.…`, `discriminator.…`), `generator_ema` with the averaged generator, and
    `lit_gans` with the format version and the class.
    """

    network_names: ClassVar[tuple[str, ...]] = ("generator",)
    latent_dim: int
    num_classes: int = 0  # classes that the generator is told
    # both kept out of the module tree: no parameters, no state-dict keys
    averaged_generator: nn.Module | None = None
    full_generator: nn.Module | None = None  # a whole copy, where a strategy cuts the networks over the ranks

    def __init__(self, seed: int, channels_last: bool, compile: bool) -> None:
        super().__init__()
        self.seed = seed
        self.channels_last = channels_last
        self.compile_networks = compile

    def __new__(cls, *args: Any, **kwargs: Any) -> GenerativeModule:
        module = super().__new__(cls)
        object.__setattr__(module, "_arguments", constructor_arguments(cls, args, kwargs))
        return module

    def _record_hyperparameters(self, received: dict[str, Any]) -> None:
        """Keeps the arguments of the constructor as plain containers, so that `cls(**hparams)` builds the same again.

        Args:
            received: what the base class received; where it is neither the default nor the caller's, the subclass has
                fixed it, and it is no argument of the subclass.
        """
        arguments = {
            name: value
            for name, value in self._arguments.items()
            if name not in received or received[name] is value or name in inspect.signature(type(self)).parameters
        }
        self.save_hyperparameters({name: to_plain(value) for name, value in arguments.items()}, logger=False)

    # ---- networks

    def configure_networks(self) -> dict[str, nn.Module]:
        """Returns the networks by name: `generator` and the discriminators of `discriminator_names`."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Builds the networks, once. Weights are a function of `seed`, whatever was drawn before."""
        if "generator" in self._modules:
            return
        with forked():
            torch.manual_seed(mix(self.seed, "networks"))
            networks = self.configure_networks()
        if tuple(networks) != self.network_names:
            raise TypeError(
                f"{type(self).__name__}.configure_networks() returned {tuple(networks)}, expected {self.network_names}."
            )
        for name, network in networks.items():
            if self.channels_last:
                network.to(memory_format=torch.channels_last)
            if self.compile_networks:
                network.compile()  # in place: the state-dict keys stay
            setattr(self, name, network)  # not add_module, which asks for the attribute first

    def __getattr__(self, name: str) -> Any:
        if name in type(self).network_names and name not in self.__dict__.get("_modules", {name}):
            self.configure_model()
        return super().__getattr__(name)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.configure_model()  # `DCGAN().to("cuda")` must move what is built later
        return super()._apply(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        self.configure_model()
        return super().named_parameters(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.configure_model()
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.configure_model()
        return super().load_state_dict(*args, **kwargs)

    # ---- samples

    def generate(self, generator: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Returns what `generator`, the trained or the averaged one, makes of a batch."""
        return generator(batch["latents"], *self.condition(batch))

    def condition(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Returns what the networks are told beside latents and images, for example the labels; nothing by default."""
        return ()

    def sampling_inputs(self, num: int, seed: int, data: Any = None) -> Tensor:
        """Returns what `decode` turns into `num` images: latents by default; `data` is the datamodule, if any."""
        return self.latents(num, seed)

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> dict[str, Tensor]:
        """Returns the batch that `generate` takes, made of inputs, labels and whatever noise there is beside."""
        return {"latents": inputs} if labels is None else {"latents": inputs, "label": labels}

    def sampling_batch_like(self, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Returns what `generate` takes to make images for the conditions of a training batch."""
        latents = self.latents(len(batch["image"]), seed).to(batch["image"])
        return self.sampling_batch(latents, batch.get("label"), seed)

    def sampling_generator(self, weights: Weights | None = None) -> nn.Module:
        """Returns the generator that samples and metrics use: the averaged one where there is one, else the raw one.

        Raises:
            RefusedInput: averaged weights are asked for and there are none.
        """
        if weights == "raw" or (weights is None and self.averaged_generator is None):
            return self.generator if self.full_generator is None else self.full_generator
        if self.averaged_generator is None:
            raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
        return self.averaged_generator.to(self.device)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Returns `num` latents that depend on `seed` alone, on any device."""
        generator = torch.Generator().manual_seed(mix(seed, "samples"))
        return torch.randn(num, self.latent_dim, generator=generator)

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
        """Turns latents (or what else the generator is fed) into images in [0, 1], in evaluation mode and float32.

        Args:
            inputs: latents (n, z).
            labels: the class of each image, where the generator is told one; `None` goes through all of them in turn.
            weights: see `sample`.
            batch_size: images made at once.
            seed: of noise beside the inputs.
        """
        if self.num_classes and labels is None:
            labels = torch.arange(len(inputs)) % self.num_classes
        network = self.sampling_generator(weights)
        was_training = network.training
        network.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):
                images = [
                    self.generate(network, self.sampling_batch(part, part_labels, mix(seed, index)))
                    for index, (part, part_labels) in enumerate(self._parts_on_device(inputs, labels, batch_size))
                ]
        finally:
            network.train(was_training)
        return self.to_unit_range(torch.cat(images).float())

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Brings what a generator makes from [-1, 1] to [0, 1]."""
        return images.add(1).div(2).clamp(0, 1)

    def _parts_on_device(
        self, inputs: Tensor, labels: Tensor | None, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        for start in range(0, len(inputs), batch_size):
            part = slice(start, start + batch_size)
            yield inputs[part].to(self.device), None if labels is None else labels[part].to(self.device)

    def sample(
        self,
        num: int = 64,
        *,
        seed: int = 0,
        label: int | None = None,
        weights: Weights | None = None,
        batch_size: int = 256,
    ) -> Float[Tensor, "n c s s"]:
        """Draws images.

        Args:
            num: how many.
            seed: the same seed gives the same latents, on any device.
            label: the class of all images, where the generator is told one; `None` goes through all classes in turn.
            weights: `ema` for the averaged generator, `raw` for the trained one; `None` takes the averaged one where
                there is one.
            batch_size: images made at once.

        Returns:
            Images in [0, 1].

        Raises:
            RefusedInput: a label that the generator does not know.
        """
        return self.decode(
            self.sampling_inputs(num, seed),
            labels=self.labels(num, label),
            weights=weights,
            batch_size=batch_size,
            seed=seed,
        )

    def labels(self, num: int, label: int | None) -> Int64[Tensor, " n"] | None:
        """Returns `num` times a label.

        Raises:
            RefusedInput: a label that the generator does not know.
        """
        if label is None:
            return None
        if not self.num_classes:
            raise RefusedInput(f"label={label}: the model was trained without classes; leave it out.")
        if not 0 <= label < self.num_classes:
            raise RefusedInput(f"label={label}: the model knows the classes 0 to {self.num_classes - 1}.")
        return torch.full((num,), label)

    def sample_grid(self, num: int, seed: int, data: Any = None) -> tuple[Float[Tensor, "n c s s"], int]:
        """Returns `num` samples and in how many columns to show them: one for each class, where there are classes."""
        columns = self.num_classes if 0 < self.num_classes <= num else math.ceil(math.sqrt(num))
        return self.decode(self.sampling_inputs(num, seed, data), seed=seed), columns

    # ---- checkpoints

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Returns the module of a checkpoint (see Lightning), ready for `sample`; `kwargs` replace its settings.

        Raises:
            RefusedInput: the file is missing, damaged, or of another architecture.
        """
        checkpoint = read_checkpoint(checkpoint_path)
        plain = checkpoint.get("hyper_parameters", {})
        if Path(checkpoint_path).is_dir():  # Lightning reads files only
            checkpoint_path = io.BytesIO()
            torch.save(checkpoint, checkpoint_path)
            checkpoint_path.seek(0)
        settings = {name: from_plain(value) for name, value in plain.items() if isinstance(value, dict | list)}
        return super().load_from_checkpoint(checkpoint_path, *args, **(settings | kwargs))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        mark = {"format_version": FORMAT_VERSION, "class_path": class_path(type(self))}
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | mark
        self.gather_generator()
        if self.averaged_generator is not None:
            state = self.averaged_generator.state_dict()
            checkpoint[EMA_KEY] = {"format_version": FORMAT_VERSION, "state_dict": state}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.configure_model()
        self.refuse_other_architecture(checkpoint)
        changed = self._changed_settings(checkpoint)
        if changed:
            rank_zero_warn(f"the checkpoint was trained with other settings: {changed}.")
        if EMA_KEY in checkpoint:
            self.start_average()
            self.averaged_generator.load_state_dict(checkpoint[EMA_KEY]["state_dict"])

    def start_average(self) -> None:
        """Makes the averaged generator: a frozen copy of the generator in evaluation mode."""
        object.__setattr__(self, "averaged_generator", self._full_generator())

    def _full_generator(self) -> nn.Module:
        """Returns a frozen copy of the generator in evaluation mode; where the networks are cut, every rank must call
        it.
        """
        if not getattr(self._strategy, "is_sharded", False):
            return copy.deepcopy(self.generator).eval().requires_grad_(False)
        with forked():
            generator = self.configure_networks()["generator"]
        generator.load_state_dict(self._strategy.full_state_dict(self.generator))
        return generator.to(self.device).eval().requires_grad_(False)

    @property
    def _strategy(self) -> Any:
        return self._trainer.strategy if getattr(self, "_trainer", None) is not None else None

    def gather_generator(self) -> None:
        """Makes whole what samples, where a strategy cuts the networks over the ranks; every rank must call it."""
        if not getattr(self._strategy, "is_sharded", False):
            return
        for callback in self._trainer.callbacks:
            if isinstance(callback, GenerativeCallback):
                callback.gather_average(self)
        object.__setattr__(self, "full_generator", self._full_generator())

    def refuse_other_architecture(self, checkpoint: dict[str, Any]) -> None:
        """Raises `RefusedInput` where the checkpoint's networks are not this module's, or of a later format."""
        version = checkpoint.get(FORMAT_KEY, {}).get("format_version", FORMAT_VERSION)
        if version > FORMAT_VERSION:
            raise RefusedInput(
                f"the checkpoint has format {version}, this lit_gans reads up to {FORMAT_VERSION}: upgrade."
            )
        theirs = {name: tuple(value.shape) for name, value in checkpoint.get("state_dict", {}).items()}
        ours = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        if theirs and theirs != ours:
            first = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
            made_by = checkpoint.get(FORMAT_KEY, {}).get("class_path", "an unknown class")
            raise RefusedInput(
                f"the checkpoint is of another architecture ({made_by};"
                f" {self._changed_settings(checkpoint) or 'same settings'}):"
                f" {first} is {theirs.get(first)} there and {ours.get(first)} in this {type(self).__name__}."
            )

    def _changed_settings(self, checkpoint: dict[str, Any]) -> str:
        theirs, ours = (
            flat(to_plain(dict(settings))) for settings in (checkpoint.get("hyper_parameters", {}), self.hparams)
        )
        changed = [name for name in ours if name in theirs and theirs[name] != ours[name]]
        return "; ".join(f"{name}={theirs[name]} there, {ours[name]} here" for name in changed)
