"""Sentences for values that jsonargparse refuses, with its own messages."""

import pytest

from lit_gans import RefusedInput
from lit_gans.config.signatures import validated
from lit_gans.config.wrong_values import sentence_of
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics.evaluator import Evaluator

OPTIONS = "'hat', 'hair', 'hair_color', 'hat_color', 'glasses', .* or null"
ATTRIBUTES = "lit_gans.metrics.scores.avatar_attributes.AvatarAttributes"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_images": "ten"}, r"data\.num_images=ten: expected a whole number\."),
        ({"label": "hats"}, rf"data\.label=hats: expected one of {OPTIONS}\."),
        ({"held_out": "hat"}, r"data\.held_out=hat: expected {NAME: str \| list\[str\]} or null\."),
        ({"held_out": {"hat": 3}}, r"data\.held_out={'hat': 3}: expected {NAME: str \| list\[str\]} or null\."),
        ({"background": "white"}, r"data\.background=white: expected a list\."),
        ({"background": [255, 0]}, r"data\.background=\[255, 0\]: expected a list with 3 elements\."),
        ({"flip": 2}, r"data\.flip=2: expected true or false\."),
        ({"image_size": "a"}, r"data\.image_size=a: expected a whole number or \[a whole number, a whole number\]\."),
    ],
)
def test_value_and_types_are_named(arguments, sentence):
    with pytest.raises(RefusedInput, match=f"^{sentence}$"):
        validated(Avatars, arguments, "data")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"combined": ["hats"]}, r"metrics\.scores: combined=hats: expected one of 'hat', .*\."),
        (
            {"held_out": {"hat": "hijabs"}},
            r"metrics.*: held_out: the attribute 'hat' has no option 'hijabs': did .*",
        ),
    ],
)
def test_the_reason_of_a_class_in_a_mapping_is_given_without_the_other_types(settings, sentence):
    node = {"_target_": "lit_gans.metrics.extractors.avatars.AvatarsExtractor"}
    scores = {"attributes": {"_target_": ATTRIBUTES, **settings}}
    with pytest.raises(RefusedInput, match=f"^{sentence}$"):
        validated(Evaluator, {"extractor": node, "scores": scores}, "metrics")


def test_the_reason_of_a_constructor_begins_with_the_key_if_there_is_one():
    message = """Does not validate against any of the Union subtypes
Subtypes: [<class 'a.B'>, <class 'NoneType'>]
Errors:
  - width: too wide
  - Expected a <class 'NoneType'>
Given value type: <class 'dict'>
Given value: {}"""
    assert sentence_of(message, "data") == "data: width: too wide"
    assert sentence_of(message, "") == "width: too wide"


def test_a_class_in_a_class_has_the_whole_key():
    message = """Parser key "data":
  Problem with given class_path 'a.B':
    Parser key "inner":
      Problem with given class_path 'a.C':
        Parser key "width":
          Expected a <class 'int'>. Got value: wide"""
    assert sentence_of(message, "") == "data.inner.width=wide: expected a whole number."


def test_another_message_is_returned_on_one_line():
    assert sentence_of("Option 'a'\n  is unknown", "data") == "Option 'a' is unknown"
