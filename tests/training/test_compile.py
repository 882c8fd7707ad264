"""Compiled networks: passes are compiled but those whose graph is differentiated twice, and no number changes."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from tests.training.compiled import CASES, PLAIN, STEPS


@pytest.fixture
def passes(monkeypatch):
    """Stands in for the compiler, which takes seconds to import; returns the passes that it would have compiled."""
    called, eager = [], []

    def compile(module):
        def call(*arguments):
            if not eager:
                called.append(module)
            return module._call_impl(*arguments)

        module._compiled_call_impl = call

    @contextmanager
    def set_stance(stance):
        assert stance == "force_eager"
        eager.append(stance)
        yield
        eager.pop()

    monkeypatch.setattr(nn.Module, "compile", compile)
    monkeypatch.setattr(torch.compiler, "set_stance", set_stance)
    return called


@pytest.mark.parametrize("case", CASES)
def test_only_passes_that_are_differentiated_twice_are_not_compiled(tiny_gan, random_images, fit, passes, case):
    name, settings, num = CASES[case]
    states = []
    for compiles in (False, True):
        module = tiny_gan(name, **settings, **PLAIN, compile=compiles)
        fit(module, random_images(batch_size=4), max_steps=STEPS)
        states.append(module.state_dict())
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert len(passes) == STEPS * num


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_the_compiler_changes_no_weight(case):
    """In a process without the checks of shapes, which the compiler cannot see through."""
    command = [sys.executable, "-m", "tests.training.compiled", case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["difference"] <= 1e-9
    assert (found["passes"], found["graph_breaks"]) == (STEPS * CASES[case][2], 0)
    assert found["graphs_after_the_first_step"] == 0  # nothing is compiled again
