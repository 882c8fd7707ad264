"""Experiment files that a command writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput
from lit_gans.config.groups import group_of
from lit_gans.config.run_folder import output_file


def experiment_output(path: str | Path) -> Path:
    """Returns the path of an experiment file that a command will write.

    Raises:
        RefusedInput: If the path is not a writable YAML file in a folder named experiment.
    """
    path = Path(path)
    if path.parent.name != "experiment" or path.suffix != ".yaml":
        raise RefusedInput(f"output={path}: an experiment is a YAML file in a folder named experiment.")
    return output_file(path)


def write_experiment(path: Path, notes: Sequence[str], values: Mapping[str, Any]) -> None:
    """Writes an experiment file.

    Args:
        path: path of the file.
        notes: paragraphs of a comment at the top of the file.
        values: options by group, and values by dotted key.
    """
    text = yaml.safe_dump(content(values), sort_keys=False)
    lines = ["# @package _global_", *(f"# {line}" for note in notes for line in note.splitlines()), text]
    with replacing(path) as part:
        part.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


def content(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contents of an experiment file: a defaults list of the options, and the values as nested dicts."""
    groups = {key: name for key, name in values.items() if group_of(key)}
    base = [groups.pop("experiment")] if "experiment" in groups else []
    # the option of a node comes before the options of its nested nodes
    order = sorted(groups, key=lambda key: "@" in key)
    nodes: dict[str, Any] = {"defaults": [*base, *({f"override /{key}": groups[key]} for key in order), "_self_"]}
    for key, value in values.items():
        if not group_of(key):
            *parents, name = key.split(".")
            node = nodes
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = value
    return nodes
