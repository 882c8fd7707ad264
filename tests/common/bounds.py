"""The versions of other libraries that `pyproject.toml` allows."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REQUIRED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["deepspeed"]]
BOUNDED = {(found := Requirement(text)).name: found.specifier for text in REQUIRED}


def oldest(name):
    (lower,) = (Version(bound.version) for bound in BOUNDED[name] if bound.operator == ">=")
    return lower
