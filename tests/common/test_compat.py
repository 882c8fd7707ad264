"""Each private API in `_compat` has an upstream issue, its version, and a test that fails once it is needless."""

import ast
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from lit_gans.common import _compat
from tests.common.bounds import BOUNDED

FOLDER, TESTS = Path(_compat.__file__).parent, Path(__file__).parent
PACKAGES = {
    "torch": "torch",
    "lightning": "lightning",
    "deepspeed": "deepspeed",
    "hydra": "hydra-core",
    "jsonargparse": "jsonargparse",
    "torchmetrics": "torchmetrics",
}


def test_every_library_has_a_module():
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == PACKAGES.keys()


def nodes_of(library):
    return ast.parse((FOLDER / f"{library}.py").read_text()).body


def definitions(library):
    return [node for node in nodes_of(library) if isinstance(node, ast.FunctionDef | ast.ClassDef)]


@pytest.mark.parametrize("library", PACKAGES)
def test_every_entry_is_named_by_the_tests_that_fail_once_it_is_needless_or_gone(library):
    assigned = (node for node in nodes_of(library) if isinstance(node, ast.Assign))
    entries = {node.targets[0].id for node in assigned if isinstance(node.value, ast.Attribute)}
    entries |= {node.name for node in definitions(library)}
    tests = (TESTS / f"test_compat_{library}.py").read_text()
    assert not [name for name in entries if not re.search(rf"\b{name}\b", tests)]


@pytest.mark.parametrize("library", PACKAGES)
def test_every_entry_names_an_upstream_issue(library):
    for node in definitions(library):
        doc = ast.get_docstring(node)
        assert re.search(r"https://github.com/\S+/(issues|pull)/\d+|No issue\s+found", doc) or "see `" in doc, node.name


@pytest.mark.parametrize("library", PACKAGES)
def test_the_bounds_allow_what_is_tested(library):
    bounds = BOUNDED[PACKAGES[library]]
    assert Version(version(PACKAGES[library])).base_version in bounds
    doc = import_module(f"lit_gans.common._compat.{library}").__doc__
    assert re.search(rf"Checked with {PACKAGES[library]} ([\d.]+\d)\.", doc)[1] in bounds
