"""Compiled networks: passes are compiled but those whose graph is differentiated twice, and no number changes."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from lit_gans.common.compilation import uncompiled
from lit_gans.training.optim import Optimizer
from tests.training.compiled import CASES, STEPS


class _Compiled(torch.autograd.Function):
    """Copies a tensor; like the output of a compiled network, it cannot be differentiated twice."""

    @staticmethod
    def forward(_, tensor):
        return tensor.clone()

    @staticmethod
    def backward(_, gradient):
        return _Gradient.apply(gradient, torch.zeros((), requires_grad=True))


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(_, gradient, marker):
        return gradient.clone()

    @staticmethod
    def backward(*_):
        raise RuntimeError("a compiled pass is differentiated twice")


@pytest.fixture
def passes(monkeypatch):
    """Stands in for the compiler, which takes seconds to import; returns the compiled passes."""
    called, eager = [], []

    def compile(module):
        def call(*arguments):
            output = module._call_impl(*arguments)
            if eager:
                return output
            called.append(module)
            return _Compiled.apply(output)

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
    optimizers = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), Optimizer("SGD", lr=0.05))
    states = []
    for compiles in (False, True):
        module = tiny_gan(name, **settings, **optimizers, compile=compiles)
        fit(module, random_images(batch_size=4), max_steps=STEPS)
        states.append(module.state_dict())
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert len(passes) == STEPS * num


@pytest.mark.usefixtures("passes")
def test_a_compiled_pass_cannot_be_differentiated_twice_and_an_uncompiled_one_can():
    network, images = nn.Conv2d(1, 1, 3), torch.randn(2, 1, 4, 4, requires_grad=True)
    network.compile()

    def penalize():
        (gradient,) = torch.autograd.grad(network(images).sum(), images, create_graph=True)
        gradient.square().sum().backward()

    with pytest.raises(RuntimeError, match="twice"):
        penalize()
    with uncompiled(network):
        penalize()


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
