"""Rules of the code, read from the code: imports go down, files and functions stay short, contracts are written."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "lit_gans").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 250, 50


def test_imports_go_down_and_nowhere_in_a_circle():
    """The rooms by floor are in pyproject.toml, `[tool.importlinter]`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_and_functions_are_short(file):
    assert not too_long(file)


def test_files_and_functions_of_the_tests_are_short():
    assert not [found for file in TESTS for found in too_long(file)]


def too_long(file):
    """The file, if it is, and its functions that are."""
    text, where = file.read_text(), str(file.relative_to(ROOT))
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f"{where}: {node.name}" for node in functions if node.end_lineno - node.lineno >= LONGEST_FUNCTION]
    return long + [where] * (text.count("\n") > LONGEST_FILE)


# what is found by name because the thing looked at is of no class of ours, each with the reason
BY_NAME: dict[tuple[str, str], str] = {}


def test_no_attribute_is_found_by_a_fixed_name():
    found = set()
    for file in FILES:
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            by_name = isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
            if by_name and isinstance(call.args[1], ast.Constant):
                found.add((str(file.relative_to(ROOT / "lit_gans")), call.args[1].value))
    assert found == BY_NAME.keys()


# private names that are reached from outside: ours, and one that Python documents
OWN_PRIVATE = {
    ("callbacks/throughput.py", "_excluded"),
    ("data/packed/pairs.py", "_packed"),
    ("data/sources/paired.py", "_pairs"),
    ("strategies/process_lifetime.py", "_exit"),
    ("training/construction.py", "_after_init"),
}


def test_private_parts_of_other_libraries_are_in_compat_alone():
    found = set()
    for file in (file for file in FILES if file.parent.name != "_compat"):
        where = str(file.relative_to(ROOT / "lit_gans"))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("lit_gans"):
                found |= {(where, alias.name) for alias in node.names if _is_private(alias.name)}
            elsewhere = isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()")
            if elsewhere and _is_private(node.attr):
                found.add((where, node.attr))
    assert found == OWN_PRIVATE


def _is_private(name):
    return name.startswith("_") and not name.endswith("_")
