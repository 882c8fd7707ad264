"""Registry of the classes that a configuration can select by name.

Classes of this package are found by importing all modules of a subpackage, such as `lit_gans.models`. Classes of other
packages are found through entry points or `LIT_GANS_IMPORT`. A class is registered under the name of its file if the
file has the name of the class (`wgan_gp.py`, `WGANGP`) or the initials of the class (`fid.py`,
`FrechetInceptionDistance`). Otherwise it is registered under its class name in snake case. The name of the base class
at the end is left out: `LinearSchedule` is registered as `linear`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType

from lit_gans.common.errors import RefusedInput, one_line

ENTRY_POINTS = "lit_gans.models"
IMPORT_VARIABLE = "LIT_GANS_IMPORT"


@cache
def outside_modules() -> tuple[ModuleType, ...]:
    """Imports and returns the modules in `LIT_GANS_IMPORT` (comma-separated) and in the entry points.

    Raises:
        RefusedInput: If a module cannot be imported.
    """
    names = [name for name in os.environ.get(IMPORT_VARIABLE, "").split(",") if name]
    names += [entry.module for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return tuple(_import(name) for name in dict.fromkeys(names))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, SyntaxError) as error:  # other errors are bugs in the module, whose traceback helps the user
        raise RefusedInput(
            f"the module {name} ({IMPORT_VARIABLE} or an entry point {ENTRY_POINTS}) cannot be imported from the"
            f" working directory, PYTHONPATH or a package: {one_line(error)}."
        ) from error


@cache
def classes(package: str, base: type) -> dict[str, type]:
    """Returns the public subclasses of `base` in `package`, its submodules and `outside_modules`, by name.

    Abstract classes are excluded.
    """
    top = importlib.import_module(package)
    files = pkgutil.walk_packages(vars(top).get("__path__", ()), f"{package}.")  # a single file has no submodules
    modules = [top, *(importlib.import_module(info.name) for info in files), *outside_modules()]
    return {name: cls for module in modules for name, cls in _subclasses_in(module, base).items()}


def _subclasses_in(module: ModuleType, base: type) -> dict[str, type]:
    """Returns the public, non-abstract subclasses of `base` that a module defines, by name."""
    members = inspect.getmembers(module, inspect.isclass)
    candidates = (cls for name, cls in members if not name.startswith("_") and not inspect.isabstract(cls))
    return {
        _name(cls, base): cls
        for cls in candidates
        if cls.__module__ == module.__name__ and issubclass(cls, base) and cls is not base
    }


def gans() -> dict[str, type]:
    """Returns all registered GANs by name. Base classes, which define no loss, are excluded."""
    from lit_gans.training.module import AdversarialModule

    return {name: cls for name, cls in classes("lit_gans.models", AdversarialModule).items() if is_gan(cls)}


def without_loss() -> dict[str, type]:
    """Returns the classes that define no loss, and are therefore no GANs, by the names that they would have."""
    from lit_gans.training.module import AdversarialModule

    return {name: cls for name, cls in classes("lit_gans.models", AdversarialModule).items() if not is_gan(cls)}


def is_gan(cls: type) -> bool:
    """Returns whether a class is a GAN. A base class that defines no loss is not a GAN."""
    from lit_gans.training.module import AdversarialModule

    return issubclass(cls, AdversarialModule) and cls.generator_loss is not AdversarialModule.generator_loss


def _name(cls: type, base: type) -> str:
    name, stem = cls.__name__.removesuffix(base.__name__), cls.__module__.rpartition(".")[2]
    words = re.fullmatch("(?:[A-Z][a-z]+)+", name)
    initials = "".join(re.findall("[A-Z]", words[0])).lower() if words else ""
    if stem == initials or stem.replace("_", "") == name.lower():
        return stem
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][A-Za-z0-9])", "_", name).lower()


def gan_files() -> dict[str, str]:
    """Returns this package's GAN modules, keyed by their names without underscores. Does not import the modules."""
    return {path.stem.replace("_", ""): path.stem for path in (Path(__file__).parents[1] / "models").glob("*.py")}
