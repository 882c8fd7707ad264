"""jsonargparse's private parts are still there, and still needed."""

from jsonargparse import ArgumentParser
from jsonargparse.typing import register_type

from lit_gans.common._compat.jsonargparse import descriptions, nested_argument, previous_value


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
