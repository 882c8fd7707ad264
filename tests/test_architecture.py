"""Rules of the code, read from the code: imports go down, private parts of other libraries are in one place."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "lit_gans").rglob("*.py"))


def test_imports_go_down_and_nowhere_in_a_circle():
    """The rooms by floor are in pyproject.toml, `[tool.importlinter]`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


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
    assert found == set()


def _is_private(name):
    return name.startswith("_") and not name.endswith("_")
