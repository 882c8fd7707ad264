"""Registry of the classes that a configuration may name: ours by file, others by entry point or `LIT_GANS_IMPORT`.

A class is registered under the name of its file if this is its name (`wgan_gp.py`, `WGANGP`) or its initials (`fid.py`,
`FrechetInceptionDistance`), otherwise under its own name in snake case.
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
    """Imports and returns the modules that `LIT_GANS_IMPORT` (comma-separated) and the entry points name.

    Raises:
        RefusedInput: a module cannot be imported.
    """
    names = [name for name in os.environ.get(IMPORT_VARIABLE, "").split(",") if name]
    names += [entry.module for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return tuple(_import(name) for name in dict.fromkeys(names))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, SyntaxError) as error:  # other errors are bugs of the module, and show their line
        raise RefusedInput(
            f"the module {name} ({IMPORT_VARIABLE} or an entry point {ENTRY_POINTS}) cannot be imported from the"
            f" working directory, PYTHONPATH or a package: {one_line(error)}."
        ) from error


@cache
def classes(package: str, base: type) -> dict[str, type]:
    """Returns the public subclasses of `base` in `package`, its submodules and the outside modules, by name.

    Abstract classes are left out.
    """
    top = importlib.import_module(package)
    files = pkgutil.walk_packages(vars(top).get("__path__", ()), f"{package}.")  # none in a single file
    inside = [top, *(importlib.import_module(info.name) for info in files)]
    return {name: cls for module in (*inside, *outside_modules()) for name, cls in _own(module, base).items()}


def _own(module: ModuleType, base: type) -> dict[str, type]:
    """Returns the public subclasses of `base` that a module defines and that can be constructed, by name."""
    members = inspect.getmembers(module, inspect.isclass)
    found = (cls for name, cls in members if not name.startswith("_") and not inspect.isabstract(cls))
    return {
        _name(cls): cls
        for cls in found
        if cls.__module__ == module.__name__ and issubclass(cls, base) and cls is not base
    }


def gans() -> dict[str, type]:
    """Returns all registered GANs by name: classes that define a loss, which excludes base classes."""
    from lit_gans.training.module import AdversarialModule

    return {name: cls for name, cls in classes("lit_gans.models", AdversarialModule).items() if is_gan(cls)}


def is_gan(cls: type) -> bool:
    """Whether a class is a GAN rather than a base class, which defines no loss."""
    from lit_gans.training.module import AdversarialModule

    return issubclass(cls, AdversarialModule) and cls.generator_loss is not AdversarialModule.generator_loss


def _name(cls: type) -> str:
    stem = cls.__module__.rpartition(".")[2]
    words = re.fullmatch("(?:[A-Z][a-z]+)+", cls.__name__)
    initials = "".join(re.findall("[A-Z]", words[0])).lower() if words else ""
    if stem == initials or stem.replace("_", "") == cls.__name__.lower():
        return stem
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][A-Za-z0-9])", "_", cls.__name__).lower()


def gan_files() -> dict[str, str]:
    """Returns the modules of our GANs by name without underscores, without importing them."""
    return {path.stem.replace("_", ""): path.stem for path in (Path(__file__).parents[1] / "models").glob("*.py")}
