"""Handling of the command-line arguments of `lit-gans train`."""

from __future__ import annotations

from lit_gans.checkpoints.remote import is_address
from lit_gans.config.completed import is_experiment_file
from lit_gans.config.overrides import SWEEP_FLAGS, is_removal, key_of

RUN_FOLDER = "hydra.run.dir"
_SWEEP_PREFIXES = ("hydra.sweep", "hydra/sweeper", "hydra.launcher", "hydra/launcher")  # includes `hydra.sweeper.`
_FOLDERS = (RUN_FOLDER, "hydra.sweep.dir", "trainer.default_root_dir")


def arguments_of_job(typed: list[str], overrides: list[str]) -> list[str]:
    """Returns the arguments with which `lit-gans train` repeats a single job.

    Outside a sweep, these are the typed arguments. In a sweep, the values of the job replace the typed lists of values.

    Args:
        typed: arguments of the command.
        overrides: Hydra's overrides of the job. They exclude overrides of Hydra itself, such as its search path, and
            contain the name of an experiment file instead of its path.
    """
    if not is_sweep(typed):
        return typed
    by_key = {key_of(item): item for item in overrides}
    kept = [item for item in typed if item not in SWEEP_FLAGS and not item.startswith(_SWEEP_PREFIXES)]
    # values that hydra.sweeper.params sets are not among the typed arguments
    from_sweeper = [item for key, item in by_key.items() if key not in map(key_of, kept) and not is_removal(item)]
    return [*(item if is_experiment_file(item) else by_key.get(key_of(item), item) for item in kept), *from_sweeper]


def is_sweep(arguments: list[str]) -> bool:
    """Returns whether the arguments request several runs."""
    return any(argument in (*SWEEP_FLAGS, "hydra.mode=MULTIRUN") for argument in arguments)


def without_address(arguments: list[str]) -> tuple[list[str], str | None]:
    """Removes a run folder that is a URL, such as `s3://bucket/run`.

    Returns:
        The remaining arguments, and the URL, or None if the run folder is not a URL.
    """
    address = given_folders(arguments).get(RUN_FOLDER)
    if address is None or not is_address(address) or is_sweep(arguments):
        return arguments, None
    return [argument for argument in arguments if key_of(argument) != RUN_FOLDER], address


def given_folders(arguments: list[str]) -> dict[str, str]:
    """Returns the folders that the arguments set, by key and without quotes."""
    pairs = ((key_of(argument), argument.partition("=")[2].strip("'\"")) for argument in arguments)
    return {key: value for key, value in pairs if key in _FOLDERS and "${" not in value}
