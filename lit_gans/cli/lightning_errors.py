"""Sentences about invalid command lines of `lit-gans fit`, from the reports of the Lightning CLI's parser."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lit_gans.common.errors import nearest, one_line
from lit_gans.config.values import expected_values

_SETTINGS = ("model", "data", "trainer", "ckpt_path", "weights_only", "seed_everything")  # of a file


def sentence(report: str, classes: Mapping[str, list[str]]) -> str:
    """Returns one sentence that names the option and what would be valid.

    Args:
        report: text of the parser's error.
        classes: names of the classes that an option such as `model` accepts.
    """
    required = re.search(r"arguments are required: (.*)", report)
    if required:
        within = "".join(f"{key}." for key in re.findall(r'Parser key "([\w.]+)"', report))
        names = sorted(name.rpartition(".")[2] for name in required[1].split(", "))
        options = " and ".join(f"--{within}{name}" for name in names)
        return f"{options} must be given: lit-gans fit --model NAME --data NAME, or -c FILE.yaml."
    if report.startswith("Unexpected config"):
        return "-c: the file holds no settings, NAME: VALUE; give run.yaml of a run."
    folder = re.search(r"Path is not a file: '?([^'\n]+)", report)
    if folder:
        return f"-c {folder[1]} is not a file: give a YAML file, such as run.yaml of a run."
    foreign = re.search(r"does not accept option '(\w+)", report)
    if foreign:
        return f"{foreign[1]}: there is no such setting; {nearest(foreign[1], _SETTINGS)}"
    unrecognized = re.search(r"unrecognized arguments: (.*)", report)
    if unrecognized:
        return f"{unrecognized[1]}: there is no such option; lit-gans fit --help lists the options."
    missing = re.search(r"File does not exist: '?([^'\n]+)", report)
    if missing:
        return f"-c {missing[1]}: there is no such file; give a YAML file, such as run.yaml of a run."
    if "Problems parsing config" in report:
        return f"-c: the file is not valid YAML ({_clause(report.partition(':')[2])}); give run.yaml of a run."
    keys = re.findall(r'Parser key "([\w.]+)"', report)
    return _of_keys(report, keys, classes) if keys else f"{_clause(report)}."


def _of_keys(report: str, keys: list[str], classes: Mapping[str, list[str]]) -> str:
    name = "--" + ".".join(keys)
    unknown = re.search(r"Option '([\w.]+)' is not accepted", report)
    made = re.search(r"class_path '[\w.]*?(\w+)'", report)
    if unknown:
        owner = made[1] if made else "its class"
        return f"{name}.{unknown[1]}: {owner} has no such argument; lit-gans fit --{keys[0]}.help {owner} lists them."
    path = re.search(r"dot import path string: (\S+)|Expected a path but (\S+) either", report)
    known = classes.get(".".join(keys), [] if len(keys) > 1 else classes.get(keys[0], []))
    if path and (known or len(keys) == 1):
        given = path[1] or path[2]
        own = nearest(given, known) if known else "give the path of a class, package.module.Class."
        return f"{name}={given}: there is no such class; {own}"
    value = re.search(r"G(?:ot|iven) value: ([^\n]+)", report)
    last = report.rpartition("Parser key")[2]
    alternatives = "Union subtypes" in last and "class_path" not in last
    expected = expected_values(last if alternatives else last.split("\n    - ")[0])
    if expected and value:
        return f"{name}={value[1].strip()} is not valid: expected {expected}."
    return f"{name}: {_clause(report)}."


def _clause(text: str) -> str:
    return one_line(text).rstrip(".")
