"""Experiment files that commands write, and `lit-gans train experiment=FILE` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lit_gans.common.errors import RefusedInput
from lit_gans.config.groups import group_of
from lit_gans.config.run_folder import output_file


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
    path.write_text("\n".join(["# @package _global_", *(f"# {line}" for line in notes), text]))


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
