"""jsonargparse's private parts are still there, and still needed."""

from contextlib import nullcontext

import pytest
import yaml
from jsonargparse import ArgumentParser
from jsonargparse.typing import register_type

from lit_gans.cli.commands import fit as lightning_cli
from lit_gans.common._compat.jsonargparse import descriptions, nested_argument, previous_value


@pytest.mark.parametrize("ours", [True, False])
def test_jsonargparse_still_hands_the_arguments_of_a_replaced_class_on(command, monkeypatch, ours):
    """`other_class_other_arguments` can go once the second case fails."""
    if not ours:
        monkeypatch.setattr(lightning_cli, "other_class_other_arguments", nullcontext)
    fit = ["fit", "--model", "R3GAN", "--data", "Digits", "--model.r1_gamma", "LinearSchedule", "--print_config"]
    code, out, err = command(*fit)
    assert code == 0, err
    gamma = yaml.safe_load(out)["model"]["init_args"]["r1_gamma"]["init_args"]
    assert gamma["start"] == (1.0 if ours else 0.05)


def test_jsonargparse_still_lists_inherited_descriptions_in_a_private_attribute():
    class Base:
        def __init__(self, size: int = 1):
            """Makes it.

            Args:
                size: how
                    large.
            """

    class Child(Base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)

    parser = ArgumentParser()
    parser.add_class_arguments(Child, "it")
    assert descriptions(parser)["it.size"] == "how large."
    assert not hasattr(parser, "actions"), "a public list"


def test_jsonargparse_still_hides_the_previous_value_from_a_registered_type():
    """`previous_value` can go once a deserializer gets it."""
    seen = []

    class Point:
        def __init__(self, x):
            self.x = x

    def read(value):
        seen.append((nested_argument(value), previous_value(Point)))
        return Point(2)

    register_type(Point, lambda point: point.x, read)
    parser = ArgumentParser(exit_on_error=False)
    first = Point(1)
    parser.add_argument("--point", type=Point, default=first)
    second = parser.parse_args(["--point.x", "3", "--point.y=4"]).point
    assert seen[0] == (("x", "3"), first), "the default"
    assert seen[-1][0] == ("y", "4")
    assert seen[-1][1] not in (None, first), "the value of the first argument"
    assert nested_argument("3") is None
    assert previous_value(Point) is None, "outside of a parser"
    assert second.x == 2
