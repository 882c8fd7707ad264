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
NEVER_RUN = {  # page, and beginning of the block
    ("CONTRIBUTING.md", "git clone"),
    ("CONTRIBUTING.md", "pytest "),
    ("CONTRIBUTING.md", "python -m tests.golden.record"),
    ("README.md", "git clone"),
    ("README.md", 'python -m pip install -e ".[test]" && pytest'),
    ("docs/extend/gan.md", "python -m docs.generate && python -m tests.strategies.matrix"),
    ("docs/get_started.md", "git clone"),
    ("docs/guides/distributed.md", "deepspeed --num_gpus 2"),
    ("docs/guides/gpu.md", "pytest -o addopts="),
    ("docs/benchmarks.md", "python -m benchmarks step --gans=[sngan,wgan_gp]"),
    ("docs/guides/gpu.md", "lit-gans bench batch_sizes"),
    ("docs/guides/gpu.md", "lit-gans train -m"),
    ("docs/guides/gpu.md", "python -m benchmarks step"),
    ("docs/studies/index.md", "python -m benchmarks study --minutes=55"),
    ("docs/studies/characterization.md", "python -m benchmarks study --parts=[batch"),
    ("docs/studies/colossal.md", "python -m benchmarks study --parts=[optimizations]"),
    ("docs/studies/deepspeed.md", "python -m benchmarks study --parts=[deepspeed]"),
    ("docs/studies/dual_discriminators.md", "python -m benchmarks study --parts=[dual,overlap]"),
    ("docs/studies/lightweight.md", "python -m benchmarks study --parts=[lightweight]"),
    ("docs/studies/dual_discriminators.md", "taskset -c 0 python -m benchmarks study --parts=[dual] --gans="),
    ("docs/guides/metrics.md", "lit-gans evaluate checkpoint=outputs/dcgan_digits/version_0 metrics=inception"),
}
_TWO_PROCESSES = "lit-gans train strategy=ddp trainer.devices=2 trainer.accelerator=cpu"
RUN_IN_THE_SLOW_TIER = {
    ("docs/guides/configuration.md", "lit-gans tune model=dcgan data=digits minutes=2"),
    ("docs/benchmarks.md", "lit-gans train -m experiment=gan_digits,"),
    ("docs/benchmarks.md", "lit-gans train -m experiment=dcgan_digits_classes,"),
    ("docs/benchmarks.md", "lit-gans train -m experiment=gan_ring,"),
    ("docs/benchmarks.md", "python -m benchmarks step --tiny=true"),
    ("docs/benchmarks.md", "python -m benchmarks strategies"),
    ("docs/benchmarks.md", "python -m benchmarks data"),
    ("docs/benchmarks.md", "python -m benchmarks metrics"),
    ("docs/extend/strategy.md", "LIT_GANS_IMPORT=patient_ddp lit-gans train"),
    ("docs/guides/data.md", "lit-gans train experiment=dcgan_emoji"),
    ("docs/guides/data.md", "OMP_NUM_THREADS=1 lit-gans train -m experiment=dcgan_emoji,"),
    ("docs/guides/data.md", "lit-gans train experiment=pix2pix_emoji"),
    ("docs/guides/data.md", "lit-gans train -m experiment=gan_ring,"),
    ("docs/guides/distributed.md", f"{_TWO_PROCESSES}\n"),
    ("docs/guides/distributed.md", f"{_TWO_PROCESSES} trainer.strategy.gradient_compression=bf16"),
    ("docs/guides/metrics.md", "lit-gans train trainer.max_steps=200 metrics.every_n_steps=50"),
    ("docs/guides/lightning.md", "lit-gans fit --model DCGAN --data Digits --trainer.max_steps 200 --trainer.strategy"),
}


def test_blocks_that_are_not_run_are_listed():
    """A block that cannot run, or is slow, is added here too, so that nobody adds one unnoticed."""
    for kind, listed in (("check", NEVER_RUN), ("slow", RUN_IN_THE_SLOW_TIER)):
        missing = set(listed)
        for block in (block for path in PAGES for block in blocks(path) if kind in block.comments):
            found = {(page, begin) for page, begin in missing if page == block.page and block.source.startswith(begin)}
            assert len(found) == 1, f"{block.place} is not run by default: {found}"
            missing -= found
        assert not missing


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_belong_to_blocks(path):
    """A comment with an empty line below it would change nothing."""
    assert path.read_text().count("<!-- test:") == sum(len(block.comments) for block in blocks(path))


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_of_a_page(path, documented, monkeypatch):
    run_page(path, documented, monkeypatch, unless=("check", "slow"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", sorted({page for page, _ in RUN_IN_THE_SLOW_TIER}))
def test_slow_code_blocks_of_a_page(page, documented, monkeypatch):
    run_page(ROOT / page, documented, monkeypatch, unless=("check",))


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
