"""Checks that a checkpoint is compatible with the module that loads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lit_gans.checkpoints.format import FORMAT_KEY, FORMAT_VERSION, flat, to_plain
from lit_gans.common.errors import RefusedInput
from lit_gans.common.identity import digest_of_object, is_versioned
from lit_gans.training.callback import GenerativeCallback, callbacks_of

_NEEDS_STATE = ("amsgrad", "centered", "momentum")  # options of optimizers that need a state if they are not zero


def claim_states(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Renames callback states that a checkpoint stores under a different key, see `loads_state_of`."""
    states = checkpoint.get("callbacks", {})
    keys = {callback.state_key for callback in callbacks_of(trainer, Callback)}
    for callback in callbacks_of(trainer, GenerativeCallback):
        unclaimed = (key for key, state in states.items() if key not in keys and callback.loads_state_of(key, state))
        old_key = None if callback.state_key in states else next(unclaimed, None)
        if old_key is not None:
            states[callback.state_key] = states.pop(old_key)


def refuse_other_architecture(module: LightningModule, checkpoint: dict[str, Any]) -> None:
    """Raises `RefusedInput` if a checkpoint's networks differ from the module's networks, or if its format is newer."""
    version = checkpoint.get(FORMAT_KEY, {}).get("format_version", FORMAT_VERSION)
    if version > FORMAT_VERSION:
        raise RefusedInput(
            f"the checkpoint has format {version}, but this version of lit_gans reads formats up to {FORMAT_VERSION}:"
            " upgrade lit_gans."
        )
    theirs = {name: tuple(value.shape) for name, value in checkpoint.get("state_dict", {}).items()}
    ours = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    if not theirs or theirs == ours:
        return
    first = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
    here = type(module).__name__
    there = made_by(checkpoint) or here
    if there != here:
        raise RefusedInput(
            f"the checkpoint has a different architecture: it is of the class {there}, but this is {here}; use the"
            " class and settings of its run."
        )
    changed = changed_settings(module, checkpoint, most=3)
    raise RefusedInput(
        f"the checkpoint has a different architecture ({there}{f'; {changed}' if changed else ''}):"
        f" {first} is {theirs.get(first)} there and {ours.get(first)} here."
    )


def refuse_other_optimizers(module: LightningModule, networks: Sequence[str], checkpoint: dict[str, Any]) -> None:
    """Raises `RefusedInput` if a checkpoint has other optimizers, or lacks a state that an option needs.

    Lightning would silently drop surplus states.
    """
    how = "resume with the same optimizers, or start from its networks with init_from."
    num = len(checkpoint["optimizer_states"])
    if num != len(networks):
        raise RefusedInput(
            f"the checkpoint has the states of {num} optimizers, but this {type(module).__name__} has"
            f" {len(networks)} ({', '.join(networks)}): {how}"
        )
    theirs, ours = _settings(checkpoint.get("hyper_parameters", {})), _settings(module.hparams)
    for name in ("generator_optimizer.name", "discriminator_optimizer.name"):
        if name in theirs and theirs[name] != ours.get(name, theirs[name]):
            raise RefusedInput(f"the checkpoint has {name}={theirs[name]}, but this run has {ours[name]}: {how}")
    for name in ours:
        network, _, option = name.partition(".")
        if network.endswith("_optimizer") and option in _NEEDS_STATE and ours[name] and not theirs.get(name, True):
            raise RefusedInput(
                f"the checkpoint has {name}={theirs[name]}, and no optimizer state for {name}={ours[name]}: {how}"
            )


def changed_settings(module: LightningModule, checkpoint: dict[str, Any], most: int | None = None) -> str:
    """Describes the settings in which a checkpoint differs from a module; lists at most `most` settings."""
    theirs, ours = _settings(checkpoint.get("hyper_parameters", {})), _settings(module.hparams)
    changed = [name for name in ours if name in theirs and theirs[name] != ours[name]]
    words = [f"{name}={theirs[name]} there, {ours[name]} here" for name in changed[:most]]
    return "; ".join([*words, *([f"{len(changed) - len(words)} more"] if len(changed) > len(words) else [])])


def _settings(hyper_parameters: Any) -> dict[str, Any]:
    return flat(to_plain(dict(hyper_parameters)))


def made_by(checkpoint: dict[str, Any]) -> str:
    """Returns the name of the class that saved a checkpoint, or an empty string if the checkpoint does not have it."""
    return str(checkpoint.get(FORMAT_KEY, {}).get("class_path", "")).rpartition(".")[2]


def warn_if_code_changed(cls: type, checkpoint: dict[str, Any]) -> None:
    """Warns if the code of a class outside this package has changed since the class saved the checkpoint."""
    theirs = checkpoint.get(FORMAT_KEY, {}).get("code_sha256")
    if theirs is not None and not is_versioned(cls) and theirs != digest_of_object(cls):
        rank_zero_warn(
            f"the checkpoint was trained with different code of {cls.__name__}: its file has changed since, so losses"
            " and networks might differ."
        )


@contextmanager
def of_class(checkpoint: dict[str, Any], cls: type) -> Iterator[None]:
    """Context manager for building `cls` from a checkpoint, which explains errors if a different class saved it."""
    try:
        yield
    except (TypeError, NotImplementedError) as error:  # `cls` has other arguments, or is a base class
        there = made_by(checkpoint)
        if there in ("", cls.__name__):
            raise
        raise RefusedInput(
            f"the checkpoint is of the class {there}, not {cls.__name__}: use {there}.load_from_checkpoint, or"
            " lit_gans.load, which finds the class."
        ) from error
