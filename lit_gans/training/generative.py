"""Generative modules: sampling, and checkpoints that verify the architecture and report changed settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn

from lit_gans.checkpoints.format import (
    EMA_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    class_path,
    flat,
    from_plain,
    read_checkpoint,
    to_plain,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.common.memory import made_if_verified
from lit_gans.training.sampling import SamplingModule

_MOST = 3  # changed settings in the sentence of a refusal


class GenerativeModule(SamplingModule):
    """Base class of generative models with self-describing checkpoints.

    A checkpoint contains `state_dict` (`generator.…`, `discriminator.…`), `generator_ema` (averaged generator), and
    `lit_gans` with the format version and the class.

    Args:
        **kwargs: see `ConstructedModule`.
    """

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path,
        map_location: torch.device | str | None = None,
        *,
        strict: bool = True,
        weights_only: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Loads a module from a checkpoint, ready for `sample`.

        Args:
            checkpoint_path: path of a checkpoint, or folder of a run, which loads its best checkpoint, or the last.
            map_location: device of the module; null is the CPU.
            strict, weights_only: arguments of Lightning; loading is always strict and never executes code.
            **kwargs: settings that override those of the checkpoint.

        Raises:
            RefusedInput: the file is missing or damaged, or is of another class or architecture.
        """
        checkpoint = read_checkpoint(checkpoint_path)
        with _of_class(checkpoint, cls):
            return cls.from_checkpoint(checkpoint, **kwargs).to(map_location or "cpu")

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], **kwargs: Any) -> Any:
        """Returns the module of a checkpoint that was read, see `load_from_checkpoint`.

        The networks that its settings describe are compared with its weights before they take memory.
        """
        if not checkpoint["state_dict"]:
            raise RefusedInput("the checkpoint holds no networks.")
        settings = {name: from_plain(value) for name, value in checkpoint["hyper_parameters"].items()} | kwargs
        checkpoint = checkpoint | {"hyper_parameters": to_plain(settings)}
        module = made_if_verified(lambda: cls(**settings), lambda sketch: sketch.refuse_other_architecture(checkpoint))
        module.on_load_checkpoint(checkpoint)
        module.load_state_dict(checkpoint["state_dict"])
        return module

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        mark = {"format_version": FORMAT_VERSION, "class_path": class_path(type(self))}
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | mark
        self.gather_generator()
        if self.averaged_generator is not None:
            state = self.averaged_generator.state_dict()
            checkpoint[EMA_KEY] = {"format_version": FORMAT_VERSION, "state_dict": state}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.refuse_other_architecture(checkpoint)
        changed = self._changed_settings(checkpoint)
        if changed:
            rank_zero_warn(f"the checkpoint was trained with other settings: {changed}.")
        if EMA_KEY in checkpoint:
            self.start_average().load_state_dict(checkpoint[EMA_KEY]["state_dict"])

    def refuse_other_architecture(self, checkpoint: dict[str, Any]) -> None:
        """Raises `RefusedInput` if a checkpoint's networks differ from this module's, or its format is newer."""
        version = checkpoint.get(FORMAT_KEY, {}).get("format_version", FORMAT_VERSION)
        if version > FORMAT_VERSION:
            raise RefusedInput(
                f"the checkpoint has format {version}, this lit_gans reads up to {FORMAT_VERSION}: upgrade."
            )
        theirs = {name: tuple(value.shape) for name, value in checkpoint.get("state_dict", {}).items()}
        ours = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        if theirs and theirs != ours:
            first = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
            here = type(self).__name__
            made_by = _class_name(checkpoint) or here
            if made_by != here:
                raise RefusedInput(
                    f"the checkpoint is of another architecture: of the class {made_by}, and this is {here}; use the"
                    " class and settings of its run."
                )
            changed = self._changed_settings(checkpoint, _MOST)
            raise RefusedInput(
                f"the checkpoint is of another architecture ({made_by}{f'; {changed}' if changed else ''}):"
                f" {first} is {theirs.get(first)} there and {ours.get(first)} here."
            )

    def _changed_settings(self, checkpoint: dict[str, Any], most: int | None = None) -> str:
        theirs, ours = (
            flat(to_plain(dict(settings))) for settings in (checkpoint.get("hyper_parameters", {}), self.hparams)
        )
        changed = [name for name in ours if name in theirs and theirs[name] != ours[name]]
        words = [f"{name}={theirs[name]} there, {ours[name]} here" for name in changed[:most]]
        return "; ".join([*words, *([f"{len(changed) - len(words)} more"] if len(changed) > len(words) else [])])


def _class_name(checkpoint: dict[str, Any]) -> str:
    """Returns the name of the class that a checkpoint is of, or nothing if it does not say it."""
    return str(checkpoint.get(FORMAT_KEY, {}).get("class_path", "")).rpartition(".")[2]


@contextmanager
def _of_class(checkpoint: dict[str, Any], cls: type) -> Iterator[None]:
    """Converts the error of a class without the settings of a checkpoint that is of another class."""
    try:
        yield
    except (TypeError, NotImplementedError) as error:  # other arguments, or a base class
        made_by = _class_name(checkpoint)
        if made_by in ("", cls.__name__):
            raise
        raise RefusedInput(
            f"the checkpoint is of the class {made_by}, not {cls.__name__}: use {made_by}.load_from_checkpoint, or"
            " lit_gans.load, which finds the class."
        ) from error
