import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

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


def test_the_same_file_elsewhere_is_the_same():
    assert digest_of_object(Path("here/weights.pt")) == digest_of_object(Path("there/weights.pt"))


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
