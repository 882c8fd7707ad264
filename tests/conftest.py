"""Shapes in signatures are checked under test; small fixtures that the tests share.

What takes seconds to import is imported by the fixtures: the process that starts the workers of pytest-xdist imports
this file, too, and runs no test.
"""

import atexit
import gc
import os
import signal
import tempfile
from functools import partial

import pytest
from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401 - the hook looks it up by its name

install_import_hook("lit_gans", "tests.typecheck.check")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it, and pass that on
os.environ["OMP_NUM_THREADS"] = "1"  # also of the processes that tests start: threads that spin slow all others
os.environ["LIT_GANS_CACHE"] = tempfile.mkdtemp()  # also of the processes that tests start
gc.disable()  # what the imports make, a million objects, is no garbage: no collection looks at it while tests run
atexit.register(gc.unfreeze)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Writes what was captured as UTF-8: workers cannot send names of files that are none."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE")


@pytest.fixture(autouse=True)
def nothing_of_a_training_remains():
    """Ends the process group that a training in this process began, which the next test would gather over, and removes
    the variables that its launcher has set, which processes of the next test would connect to.
    """
    import torch

    before = {name: os.environ.get(name) for name in LAUNCH}
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@pytest.fixture
def tiny_gan():
    """See `tests.tiny.tiny_gan`."""
    from tests.tiny import tiny_gan

    return tiny_gan


@pytest.fixture
def random_images():
    """See `tests.tiny.random_images`."""
    from tests.tiny import random_images

    return random_images


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process and returns its exit code, what it printed, and its errors."""
    from lit_gans.cli import main as cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.run([*arguments])
        except SystemExit as stopped:  # the Lightning CLI, and a sweep that a signal ends
            code = stopped.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def ran(command):
    """Runs a command line that succeeds, and returns what it printed."""

    def run(*arguments: str) -> str:
        code, out, err = command(*arguments)
        assert code == 0, err
        return out

    return run


@pytest.fixture
def refused(command):
    """Runs a command line that is refused, and returns what it says."""

    def run(*arguments: str) -> str:
        code, _, err = command(*arguments)
        assert code == 2, err
        assert "Traceback" not in err
        return err

    return run


@pytest.fixture
def train(command):
    """Runs `lit-gans train` in this process and returns its exit code; what it printed is in `train.out` and `.err`."""

    def run(*overrides: str) -> int:
        code, run.out, run.err = command("train", *overrides)
        return code

    return run


@pytest.fixture
def fit(tmp_path):
    """See `tests.tiny.fit`; in the temporary folder of the test."""
    from tests.tiny import fit

    return partial(fit, default_root_dir=tmp_path)
