"""Names of classes, and where two lists of them differ."""

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
