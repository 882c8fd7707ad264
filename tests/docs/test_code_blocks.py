"""Every code block of the README and of the site is run, in the order of its page, in one folder.

What a comment above a block may ask for is written in `tests/docs/blocks.py`.
"""

from __future__ import annotations

import runpy
import tomllib

import pytest
import yaml

from tests.docs.blocks import LANGUAGES, PAGES, ROOT, blocks, steps
from tests.docs.checking import check_command
from tests.docs.running import run_command

WITH_BLOCKS = [path for path in PAGES if blocks(path)]
SLOW = [path for path in WITH_BLOCKS if any("slow" in block.comments for block in blocks(path))]


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_belong_to_blocks(path):
    """A comment with an empty line below it would change nothing."""
    assert path.read_text().count("<!-- test:") == sum(len(block.comments) for block in blocks(path))


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_of_a_page(path, documented, monkeypatch):
    run_page(path, documented, monkeypatch, unless=("check", "slow"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", SLOW, ids=lambda path: str(path.relative_to(ROOT)))
def test_slow_code_blocks_of_a_page(path, documented, monkeypatch):
    run_page(path, documented, monkeypatch, unless=("check",))


def run_page(path, folder, monkeypatch, unless):
    """Runs the blocks of a page; shell blocks with a comment of the kinds `unless` are only checked."""
    for block in blocks(path):
        assert block.language in LANGUAGES, f"{block.place}: say the language, one of {LANGUAGES}"
        run = not any(kind in block.comments for kind in unless)
        assert run or block.language == "bash", f"{block.place}: only shell blocks need not run"
        try:
            with monkeypatch.context() as patch:
                RUN[block.language](block, folder, patch) if run else check_bash(block, patch)
        except BaseException as error:
            error.add_note(f"in the {block.language} block of {block.place}:\n{block.code}")
            raise


def write(block, folder):
    """Writes the file that a block is, and returns whether it is one."""
    if block.file is None:
        return False
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code)
    return True


def run_python(block, folder, patch):
    if write(block, folder):
        return runpy.run_path(str(folder / block.file))
    exec(compile(block.code, block.place, "exec"), {"__name__": "__main__"})


def read_yaml(block, folder, patch):
    assert isinstance(yaml.safe_load(block.code), dict)
    write(block, folder)


def read_toml(block, folder, patch):
    tomllib.loads(block.code)


def read_text(block, folder, patch):
    assert "lit-gans train" not in block.code or block.code.startswith("lit-gans:"), "commands belong in bash blocks"


def run_bash(block, folder, patch):
    for words in steps(block):
        run_command(words, block.overrides, folder, patch)


def check_bash(block, patch):
    for words in steps(block):
        check_command(words, patch)


RUN = {"python": run_python, "bash": run_bash, "yaml": read_yaml, "toml": read_toml, "text": read_text}
