"""When and how the numbers of an iteration are read."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from lit_gans.training import finite
from lit_gans.training.finite import FiniteCheck


class Event:
    """Stands for an event of CUDA, and notes what is done with it."""

    noted = []

    def __init__(self):
        self.number = sum(what == "record" for what, _ in self.noted)

    def record(self):
        self.noted.append(("record", self.number))

    def synchronize(self):
        self.noted.append(("wait for", self.number))


def test_on_cuda_an_iteration_is_read_only_once_the_next_one_is_queued(monkeypatch):
    """A fake tensor has no values: to read one raises."""
    monkeypatch.setattr(finite.torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "noted", [])
    with FakeTensorMode():
        check = FiniteCheck(("discriminator", "generator"))
        check.start({"generator": [torch.ones(3, 3, device="cuda"), torch.ones(2, device="cuda")]})
        check.add("loss", "discriminator", torch.ones((), device="cuda"))
        check.end_iteration(1)
        assert Event.noted == [("record", 0)]
        with pytest.raises(DataDependentOutputException):
            check.end_iteration(2)
    assert Event.noted == [("record", 0), ("record", 1), ("wait for", 0)]


def test_numbers_of_several_dtypes():
    check = FiniteCheck(("discriminator", "generator"))
    check.start({"generator": [torch.zeros(0), torch.full((8,), 30000.0).half()]})  # a norm beyond fp16
    check.add("loss", "discriminator", torch.ones(1, dtype=torch.bfloat16))
    check.add("loss", "generator", torch.tensor(1e300, dtype=torch.float64))
    check.end_iteration(2)
    check.add("loss", "generator", torch.tensor(-math.inf))
    with pytest.raises(FloatingPointError, match="the loss of the generator is not finite since iteration 3:"):
        check.end_iteration(3)
