"""Rules of the code, read from the code: imports go down, private parts of other libraries are in one place."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "lit_gans").rglob("*.py"))
OUTSIDE = [file for file in FILES if file.parent.name != "_compat"]
# without an underscore, but protected or not documented
UNDOCUMENTED = {
    *("fit_loop", "epoch_loop", "validate_loop", "optim_step_progress", "batch_progress", "epoch_progress"),
    *("restarted_mid_epoch", "is_resuming"),  # of Lightning's loops
    *("bit16_groups", "averaged_gradients", "ds_tensor", "ds_shape", "ds_persist"),  # of DeepSpeed
}
SET_BY_METACLASS = {"_abc_impl", "_is_protocol", "_is_runtime_protocol", "_backward_cls"}
DOCUMENTED = {"os._exit"}  # public in spite of its name
LIGHTNING_ROOMS = [f"lightning.pytorch.{room}" for room in ("callbacks", "loggers", "strategies")]
LIVE = ("callback_metrics", "logged_metrics", "progress_bar_metrics")  # dictionaries that a trainer keeps


def test_imports_go_down_and_nowhere_in_a_circle():
    """The rooms by floor are in pyproject.toml, `[tool.importlinter]`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_private_parts_of_other_libraries_are_in_compat_alone():
    found = set()
    for file in OUTSIDE:
        where = str(file.relative_to(ROOT / "lit_gans"))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("lit_gans"):
                found |= {(where, alias.name) for alias in node.names if _is_private(alias.name)}
            elsewhere = isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()")
            if elsewhere and ast.unparse(node) not in DOCUMENTED and _is_private(node.attr):
                found.add((where, node.attr))
    assert found == set()


def test_undocumented_parts_of_lightning_and_deepspeed_are_in_compat_alone():
    """Names without an underscore cannot be told from public ones: those that were once used are listed."""
    found = set()
    for file in OUTSIDE:
        where = str(file.relative_to(ROOT / "lit_gans"))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                changes = node.attr in ("update", "pop", "clear", "setdefault") and text.split(".")[-2] in LIVE
                of_engine = "engine" in text and ".optimizer." in text  # ZeRO's own optimizer
                if node.attr in UNDOCUMENTED or changes or of_engine:
                    found.add((where, text))
            stores = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            if stores and isinstance(node.value, ast.Attribute) and node.value.attr in LIVE:
                found.add((where, ast.unparse(node)))
    assert found == set()


def test_no_two_public_classes_share_a_name():
    found = defaultdict(list)
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not _is_private(node.name):
                found[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
    libraries = ("torch", "torch.nn", "torch.optim", "torch.utils.data", "lightning.pytorch", *LIGHTNING_ROOMS)
    members = [(library, vars(importlib.import_module(library))) for library in libraries]
    theirs = {name: library for library, names in members for name, it in names.items() if inspect.isclass(it)}
    assert {name: theirs[name] for name in found.keys() & theirs.keys()} == {}, "in one script, one hides the other"


@cache
def _private_names(cls):
    """Returns the private names that a class defines, or assigns to its instances."""
    names = {name for name in vars(cls) if _is_private(name)}
    try:
        nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
    except (OSError, TypeError):  # not written in Python
        return names
    assigned = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return names | {node.attr for node in assigned if ast.unparse(node.value) == "self" and _is_private(node.attr)}


@pytest.mark.parametrize(
    "room", sorted({file.relative_to(ROOT).parts[1] for file in OUTSIDE} - {"demo", "__main__.py"})
)
def test_no_class_uses_or_overrides_a_private_part_of_a_base_class_of_another_library(room):
    """Through `self`, where names alone do not say whose part it is; `_compat` has such classes, too."""
    found = set()
    for file in (file for file in OUTSIDE if file.relative_to(ROOT).parts[1] == room):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for cls in (each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == name):
            nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
            used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_private(node.attr)}
            for base in cls.__mro__:
                if base.__module__.partition(".")[0] not in {"lit_gans", *sys.stdlib_module_names}:
                    theirs = (used | vars(cls).keys()) & _private_names(base)
                    found |= {(cls.__qualname__, base.__qualname__, each) for each in theirs}
    assert {each for each in found if each[-1] not in SET_BY_METACLASS} == set()


def _is_private(name):
    return name.startswith("_") and not name.endswith("_")


def test_text_is_read_and_written_in_a_named_encoding():
    """Otherwise that of the locale, which may be ASCII, would be taken."""
    found = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call) and _opens_text(node):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def _opens_text(call):
    """Whether a call opens a file or a process as text, without an encoding."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {keyword.arg for keyword in call.keywords}
    if "encoding" in given or ast.unparse(call.func) == "av.open":  # of a film
        return False
    if name in ("read_text", "write_text"):
        return True
    if {"text", "universal_newlines"} & given:
        return True
    of_a_path = isinstance(call.func, ast.Attribute) and not call.args and not given  # `path.open()`
    modes = [value.value for value in call.args if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return name == "open" and (of_a_path or any(re.fullmatch("[rwax]t?[+]?", mode) for mode in modes))
