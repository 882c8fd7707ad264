"""`lit-gans tune model=NAME data=NAME [minutes=2]`: finds the fastest settings on this machine.

Finds the largest batch without a loss of speed, and the fastest precision, memory format, compilation, placement of the
data and number of threads, by short trainings in turns. Prints why each is chosen or not, and writes an experiment file
that lit-gans train experiment=FILE takes. All keys of lit-gans train are accepted.

Keys
  minutes  time of all trials together [default: 2]
  output   file to write, in a folder named experiment [default: tuned/experiment/tuned_NAME.yaml]

Examples:
    lit-gans tune
    lit-gans tune model=sngan data=cifar10 minutes=5
    lit-gans tune experiment=dcgan_digits output=mine/experiment/fast.yaml
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lit_gans.cli.notices import log
from lit_gans.cli.train_arguments import experiment_file, with_defaults
from lit_gans.cli.tuning import LARGEST_BATCH, Tuning
from lit_gans.common.errors import RefusedInput, refuse_above
from lit_gans.common.quiet import quiet
from lit_gans.config.build import build, resolve
from lit_gans.config.hydra_app import compose
from lit_gans.config.mistakes import DONE, refused_is_2
from lit_gans.config.overrides import key_of
from lit_gans.config.run_folder import refuse_file

_OWN = {"minutes": "2", "output": ""}
_UNMEASURED = ("callbacks", "metrics", "logger")  # parts of a run that the trials do not have
_NAMED = ("experiment", "model", "data")  # groups in the name of the file
_GROUPS = (*_NAMED, "strategy", "precision", "metrics", "callbacks", "logger")
_WRITTEN = "# lit-gans tune"  # second line of a file
_PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code."""
    quiet()
    return refused_is_2(lambda: _tune(arguments))


def _tune(arguments: list[str]) -> int:
    given = dict(_OWN)
    overrides = []
    for argument in arguments:
        word = argument.lstrip("-").partition("=")[0]
        if word in _OWN and key_of(argument) is None:
            raise RefusedInput(f"{argument}: settings are given as key=value; did you mean {word}=VALUE?")
        key = key_of(argument)
        if key in _OWN:
            given[key] = argument.partition("=")[2]
        else:
            overrides.append(argument)
    try:
        minutes = float(given["minutes"])
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise RefusedInput(f"minutes={given['minutes']} must be a number greater than 0.")
    notices: list[str] = []
    overrides = with_defaults(overrides, notices)
    _refuse_no_effect(overrides)
    compose(*experiment_file(overrides))  # refuses what the trials leave out, and the file names
    trained = [override for override in overrides if _part(override) not in _UNMEASURED]
    config = resolve(compose(*experiment_file(trained), "callbacks=none", "metrics=none", "logger=none"))
    names = _choices(overrides)
    stem = "_".join(Path(name).stem for group, name in names.items() if group in _NAMED)
    output = Path(given["output"] or f"tuned/experiment/tuned_{stem}.yaml")
    if output.parent.name != "experiment" or output.suffix != ".yaml":
        raise RefusedInput(f"output={output}: an experiment is a YAML file in a folder named experiment.")
    refuse_file(str(output), "output")
    _refuse_foreign(output)
    config["trainer"] |= _one_process(config["trainer"])
    build(config)  # refuses values that the trials replace, too
    refuse_above(LARGEST_BATCH, **{"data.batch_size": config["data"]["batch_size"]})
    log(notices)
    tuning = Tuning(config, 60 * minutes)
    logger.info("short trainings for up to %g min: larger batches first, then one setting after the other", minutes)
    tuning.run()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(_file(tuning, overrides))
    threads = f"OMP_NUM_THREADS={tuning.threads} " if tuning.threads != tuning.default_threads else ""
    print(f"\nwritten: {output}\nnext:    {threads}lit-gans train experiment={output}", flush=True)
    return DONE


def _part(override: str) -> str:
    """Returns the first name of the node that an override sets: `metrics` of `score@metrics.scores.kid=kid`."""
    key = key_of(override) or ""
    return (key.partition("@")[2] or key).partition(".")[0]


def _refuse_no_effect(overrides: list[str]) -> None:
    """Raises `RefusedInput` for options of Hydra, and keys of a run that short trainings do not have."""
    for override in overrides:
        if override.startswith("-"):
            raise RefusedInput(f"{override}: tune measures one training, and has no options: give key=value alone.")
        if key_of(override) in ("resume", "init_from"):
            raise RefusedInput(f"{override}: the short trainings of tune begin from new networks; leave it out.")


def _refuse_foreign(output: Path) -> None:
    """Raises `RefusedInput` for a file that another hand than tune's has written."""
    if output.exists() and f"\n{_WRITTEN}" not in output.read_text(errors="replace"):
        raise RefusedInput(f"output={output}: the file exists, and tune has not written it; choose another output.")


def _one_process(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what limits the trainer to one process.

    Raises:
        RefusedInput: there are, or should be, several: each would search by itself, and the trials would not fit.
    """
    devices = trainer.get("devices")
    given = {"trainer.devices": devices, "trainer.num_nodes": trainer.get("num_nodes")}
    given["WORLD_SIZE"] = os.environ.get("WORLD_SIZE")
    for name, value in given.items():
        single = isinstance(value, list) and len(value) == 1
        if not single and str(value) not in ("None", "auto", "1"):
            raise RefusedInput(
                f"{name}={value}: tune measures one process, and what it finds holds for each of several: use one."
            )
    return {} if isinstance(devices, list) else {"devices": 1}


def _choices(overrides: list[str]) -> dict[str, str]:
    """Returns the chosen options of groups, by group; `optimizer@model.generator_optimizer` is one."""
    pairs = ((key_of(override) or "", override.partition("=")[2]) for override in overrides)
    found = {key: value for key, value in pairs if key in _GROUPS or "@" in key}
    order = [*_GROUPS, *found]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _file(tuning: Tuning, overrides: list[str]) -> str:
    """Returns the experiment file."""
    names = _choices(overrides)
    defaults: list[Any] = [Path(names.pop("experiment")).stem] if "experiment" in names else []
    precision = tuning.found.get("trainer.precision")
    if precision is not None:
        names["precision"] = {value: name for name, value in _PRECISIONS.items()}[precision]
    defaults += [{f"override /{group}": name} for group, name in names.items()]
    content: dict[str, Any] = {"defaults": defaults} if defaults else {}
    chosen = {key: value for key, value in tuning.found.items() if key != "trainer.precision"}
    for key, value in {**_plain(overrides), **chosen}.items():
        *path, name = key.split(".")
        node = content
        for part in path:
            node = node.setdefault(part, {})
        node[name] = value
    notes = "".join(f"# {line}\n" for line in tuning.lines)
    command = "".join(f" {override}" for override in overrides)
    text = yaml.safe_dump(content, sort_keys=False)
    return f"# @package _global_\n{_WRITTEN}{command}\n{notes}# threads: {tuning.threads}\n{text}"


def _plain(overrides: list[str]) -> dict[str, Any]:
    """Returns the given values by dotted key."""
    choices = _choices(overrides)
    pairs = (override.partition("=") for override in overrides if key_of(override) not in choices)
    return {key.lstrip("+~"): yaml.safe_load(value) for key, _, value in pairs}
