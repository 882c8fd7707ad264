"""Names of classes, and where two lists of them differ."""

from types import SimpleNamespace

import numpy as np
import pytest

from lit_gans.data.class_names import class_names_of, other_class
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.emoji import GROUPS, Emoji
from lit_gans.data.sources.points import Ring


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        (("cat", "dog"), ("cat", "dog"), None),
        (("cat", "dog"), (), None),
        ((), ("cat", "dog"), None),
        (("cat", "dog"), ("cat", "emu"), "class 1 is dog, not emu"),
        (("cat", "dog"), ("dog", "cat"), "class 0 is cat, not dog"),
        (("cat", "dog"), ("cat",), "class 1 is dog, not missing"),
        (("cat",), ("cat", "dog"), "class 1 is missing, not dog"),
    ],
)
def test_the_first_class_that_differs_is_named(ours, theirs, difference):
    assert other_class(ours, theirs) == difference


def test_only_some_data_have_names_of_classes():
    assert class_names_of(Digits()) == class_names_of(Ring()) == class_names_of(object()) == ()
    assert class_names_of(Emoji()) == GROUPS


@pytest.mark.parametrize(
    ("names", "expected"),
    [(np.array(["cat", "dog"]), ("cat", "dog")), ([1, 2], ("1", "2")), (None, ()), (lambda: ["cat"], ()), ([], ())],
)
def test_names_of_any_kind_become_text(names, expected):
    """A checkpoint could not be read again if it contained text of NumPy."""
    found = class_names_of(SimpleNamespace(class_names=names))
    assert found == expected
    assert all(type(name) is str for name in found)
