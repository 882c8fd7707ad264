import logging
import re
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lit_gans.common.identity import code_of, digest_of_object


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def scaled(images, factor=2):
    return factor * images


DIFFERENT = [
    None,
    0,
    0.0,
    False,
    "0",
    b"0",
    torch.zeros(1),
    torch.zeros(2),
    torch.zeros(1, dtype=torch.int32),
    np.zeros(1),
    [0],
    (0,),
    {0: 1},
    {1: 0},
    {0, 1},
    {0, 2},
    Thing(),
    Thing(a=1),
    Thing(b=1),
    Thing(a=Thing()),
    scaled,
    partial(scaled, factor=1),
    partial(scaled, factor=3),
    torch.float32,
    torch,
    np,
    re.compile("a"),
    re.compile("b"),
    Thing,
    Path("a"),
]


def test_objects_have_one_digest_only_if_they_are_equal():
    digests = [digest_of_object(thing) for thing in DIFFERENT]
    assert len({*digests}) == len(digests)
    assert [digest_of_object(thing) for thing in DIFFERENT] == digests
    assert digest_of_object(Thing(a=[1], b=torch.ones(2))) == digest_of_object(Thing(a=[1], b=torch.ones(2)))


def test_an_object_that_contains_itself_has_a_digest():
    def circle(number):
        thing = Thing(number=number)
        thing.itself = [thing]
        return digest_of_object(thing)

    assert circle(1) == circle(1) != circle(2)


def test_a_file_counts_by_its_name_and_content_and_no_other_path_does(tmp_path):
    for place, content in (("here", "a"), ("there", "a"), ("elsewhere", "b")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "weights.pt").write_text(content)
    here, there, elsewhere = (
        digest_of_object(tmp_path / place / "weights.pt") for place in ("here", "there", "elsewhere")
    )
    assert here == there != elsewhere
    assert digest_of_object(Path("here/missing.pt")) != digest_of_object(Path("there/missing.pt"))
    assert digest_of_object(tmp_path / "here") != digest_of_object(tmp_path / "there")


class Slots:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.factors = factor, [factor]

    def forward(self, images):
        return images * self.factor * self.factors[0]


def with_default(factor):
    def scaled(images, *, factor=factor):
        return images * factor

    return scaled


def with_attribute(factor):
    def scaled(images):
        return images

    scaled.factor = factor
    return scaled


def with_class_attribute(thing):
    class Act(nn.Module):
        act = thing

    return Act()


def with_closure(factor):
    class Act(nn.Module):
        def forward(self, images):
            return images * factor

    return Act()


def linear(factor):
    module = nn.Linear(2, 2)
    nn.init.constant_(module.weight, factor)
    nn.init.zeros_(module.bias)
    return module.eval()


def traced(factor):
    constant = torch.full((3,), float(factor))
    return torch.jit.trace(lambda images: images * constant, torch.zeros(3))


TWO = {
    "built-in functions": (lambda: torch.tanh, lambda: torch.sigmoid),
    "methods of tensors": (lambda: torch.ones(2).add, lambda: torch.zeros(2).add),
    "slots": (lambda: Slots(1), lambda: Slots(2)),
    "defaults of keywords": (lambda: with_default(1), lambda: with_default(2)),
    "attributes of functions": (lambda: with_attribute(1), lambda: with_attribute(2)),
    "modules of classes": (lambda: with_class_attribute(nn.Tanh()), lambda: with_class_attribute(nn.Sigmoid())),
    "functions of classes": (lambda: with_class_attribute(torch.tanh), lambda: with_class_attribute(torch.sigmoid)),
    "closures of methods": (lambda: with_closure(1), lambda: with_closure(2)),
    "scripted attributes": (lambda: torch.jit.script(Scaled(1.0)), lambda: torch.jit.script(Scaled(2.0))),
    "traced constants": (lambda: traced(1), lambda: traced(2)),
    "frozen weights": tuple(
        (lambda factor=factor: torch.jit.freeze(torch.jit.script(linear(factor)))) for factor in (1, 2)
    ),
    "slopes in a graph": tuple(
        (lambda slope=slope: torch.fx.symbolic_trace(nn.Sequential(nn.LeakyReLU(slope)))) for slope in (0.1, 0.2)
    ),
    "modules in a graph": tuple(
        (lambda kind=kind: torch.fx.symbolic_trace(nn.Sequential(kind()))) for kind in (nn.Tanh, nn.Sigmoid)
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("what", TWO)
def test_what_computes_something_else_has_another_digest(what):
    one, other = TWO[what]
    assert digest_of_object(Thing(a=one())) == digest_of_object(Thing(a=one()))
    assert digest_of_object(Thing(a=one())) != digest_of_object(Thing(a=other()))


def test_what_cannot_be_described_equals_nothing_and_locks_and_loggers_count_for_nothing():
    def numbers():
        yield 1

    assert digest_of_object(Thing(a=numbers())) != digest_of_object(Thing(a=numbers()))
    for thing in (threading.Lock, threading.RLock, lambda: logging.getLogger("a")):
        assert digest_of_object(Thing(a=thing())) == digest_of_object(Thing(a=thing()))


@pytest.mark.parametrize("others", [{}, {"factor": 2}])
def test_classes_without_a_file_are_told_apart_by_their_code_and_attributes(others):
    """As in a notebook."""

    def made(code):
        namespace = {"__name__": "nowhere"}
        exec(code, namespace)
        return namespace["Made"]

    text = "class Made:\n    factor = 1\n    def scale(self, images):\n        return images * 3\n"
    one, same, other = made(text), made(text), made(text.replace("3", "4"))
    assert code_of(one) == code_of(same) != code_of(other)
    for name, value in others.items():
        setattr(one, name, value)
    assert (digest_of_object(one()) == digest_of_object(same())) == (not others)
