"""Rules of the code, read from the code: imports go down, private parts of other libraries are in one place."""

import ast
import re
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
