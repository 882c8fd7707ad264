"""What every generative module shares: networks by name, averaged weights, samples, checkpoints."""

from __future__ import annotations

import copy
import pickle
import sys
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.parsing import save_hyperparameters
from torch import Tensor, nn

from lit_gans.errors import RefusedInput
from lit_gans.random import forked, mix

FORMAT_VERSION = 1
FORMAT_KEY = "lit_gans"  # {"format_version", "class_path", and what callbacks add}
EMA_KEY = "generator_ema"  # {"format_version", "state_dict"}: names as in the generator

Weights = Literal["ema", "raw"]


def class_path(thing: type) -> str:
    """Returns the importable name of a class."""
    return f"{thing.__module__}.{thing.__qualname__}"


def to_plain(value: Any) -> Any:
    """Turns dataclass values into class_path / init_args containers that `weights_only=True` loads."""
    if is_dataclass(value):
        init_args = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"class_path": class_path(type(value)), "init_args": init_args}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def from_plain(value: Any) -> Any:
    """Rebuilds what `to_plain` wrote. Only classes that are already imported: loading never imports new code."""
    if isinstance(value, list):
        return tuple(from_plain(item) for item in value)
    if not (isinstance(value, dict) and "class_path" in value):
        return value
    module, _, name = str(value["class_path"]).rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise RefusedInput(f"{value['class_path']} is not imported: import its module before the checkpoint is loaded.")
    return found(**{key: from_plain(item) for key, item in value["init_args"].items()})


class GenerativeModule(LightningModule):
    """Plain networks under their own names, built once, lazily, from the module's own seed.

    A checkpoint holds `state_dict` (`generator.…`, `discriminator.…`), `generator_ema` with the averaged generator, and
    `lit_gans` with the format version and the class.
    """

    network_names: ClassVar[tuple[str, ...]] = ("generator",)
    latent_dim: int
    averaged_generator: nn.Module | None = None  # kept out of the module tree: no parameter, no state-dict key

    def __init__(self, seed: int, channels_last: bool, compile: bool) -> None:
        super().__init__()
        self.seed = seed
        self.channels_last = channels_last
        self.compile_networks = compile

    def _record_hyperparameters(self) -> None:
        """To be called from the base `__init__`: finds the arguments in the frames of the constructors."""
        save_hyperparameters(self)  # the function: the method would store the Lightning CLI's own shape
        self._hparams.update({key: to_plain(value) for key, value in self._hparams.items()})

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

    def sampling_generator(self, weights: Weights | None = None) -> nn.Module:
        """Returns the generator that samples and metrics use: the averaged one where there is one, else the raw one.

        Raises:
            RefusedInput: averaged weights are asked for and there are none.
        """
        if weights == "raw" or (weights is None and self.averaged_generator is None):
            return self.generator
        if self.averaged_generator is None:
            raise RefusedInput("weights=ema: this checkpoint holds no averaged weights; use weights=raw.")
        return self.averaged_generator.to(self.device)

    def latents(self, num: int, seed: int = 0) -> Float[Tensor, "n z"]:
        """Returns `num` latents that depend on `seed` alone, on any device."""
        generator = torch.Generator().manual_seed(mix(seed, "samples"))
        return torch.randn(num, self.latent_dim, generator=generator)

    @torch.no_grad()
    def decode(
        self, latents: Float[Tensor, "n z"], *, weights: Weights | None = None, batch_size: int = 256
    ) -> Float[Tensor, "n c s s"]:
        """Turns latents into images in [0, 1], in evaluation mode and float32, in batches of `batch_size`."""
        network = self.sampling_generator(weights)
        was_training = network.training
        network.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):
                images = [network(part.to(self.device)) for part in latents.split(batch_size)]
        finally:
            network.train(was_training)
        return torch.cat(images).float().add(1).div(2).clamp(0, 1)

    def sample(
        self, num: int = 64, *, seed: int = 0, weights: Weights | None = None, batch_size: int = 256
    ) -> Float[Tensor, "n c s s"]:
        """Draws images.

        Args:
            num: how many.
            seed: the same seed gives the same latents, on any device.
            weights: `ema` for the averaged generator, `raw` for the trained one; `None` takes the averaged one where
                there is one.
            batch_size: images decoded at once.

        Returns:
            Images in [0, 1].
        """
        return self.decode(self.latents(num, seed), weights=weights, batch_size=batch_size)

    # ---- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        mark = {"format_version": FORMAT_VERSION, "class_path": class_path(type(self))}
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | mark
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
        object.__setattr__(self, "averaged_generator", copy.deepcopy(self.generator).eval().requires_grad_(False))

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
        settings = checkpoint.get("hyper_parameters", {})
        return "; ".join(
            f"{key}={settings[key]} there, {value} here"
            for key, value in self.hparams.items()
            if key in settings and settings[key] != value
        )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU without executing anything that it holds.

    Raises:
        RefusedInput: the file is missing, no checkpoint, or cut short.
    """
    if not Path(path).is_file():
        raise RefusedInput(f"there is no checkpoint at {path}: give the path of a .ckpt file.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise RefusedInput(f"{path} cannot be read as a checkpoint: {str(error).splitlines()[0]}") from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise RefusedInput(f"{path} is no Lightning checkpoint: it has no state_dict.")
    return checkpoint
