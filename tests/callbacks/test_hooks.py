"""Calls of callback hooks in an iteration."""

import pytest
from lightning.pytorch.profilers import Profiler

from lit_gans import build, compose
from tests.commands import TINY


class CallsOfHooks(Profiler):
    """Lists the calls of callback hooks, and counts the iterations."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.iterations = 0

    def start(self, action_name):
        kind, _, hook = action_name.rpartition(".")
        self.iterations += hook == "training_step"
        if kind.startswith("[Callback]"):
            self.calls.append(hook)

    def stop(self, action_name):
        pass


@pytest.fixture
def profiler(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, data, trainer = build(compose(*TINY, "logger=none", "trainer.max_steps=4"))
    trainer.profiler = CallsOfHooks()
    trainer.fit(module, data)
    return trainer.profiler


def test_an_iteration_calls_each_default_callback_once(profiler):
    """Of 56 hooks, eight are overridden: the end of an iteration in seven callbacks, and its start in one of them."""
    of_iterations = [hook for hook in profiler.calls if hook.startswith(("on_train_batch", "on_before", "on_after"))]
    assert profiler.iterations == 4
    assert len(of_iterations) <= 8 * profiler.iterations
    assert of_iterations.count("on_train_batch_end") == 7 * profiler.iterations
