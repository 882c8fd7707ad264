"""Private APIs of jsonargparse. Checked with jsonargparse 4.53.0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jsonargparse import ArgumentParser


def descriptions(parser: ArgumentParser) -> dict[str, str]:
    """Returns the descriptions of a parser's arguments, in one line each, by name.

    Reads `argparse.ArgumentParser._actions`: the public `format_help` has them only in a text for people. No issue
    found.
    """
    return {action.dest: " ".join((action.help or "").split()) for action in parser._actions}


@contextmanager
def other_class_other_arguments() -> Iterator[None]:
    """Makes a class that replaces another one start with its own defaults.

    Replaces `_typehints.discard_init_args_on_class_path_change`, which passes on arguments of the same name: RMSprop
    would silently train with Adam's learning rate. Reported in https://github.com/mauvilsa/jsonargparse/issues/460.
    """
    from jsonargparse import Namespace, _typehints

    def discard(parser: Any, previous: Any, value: Any) -> None:
        if previous and "init_args" in previous and previous["class_path"] != value["class_path"]:
            previous["init_args"] = Namespace()

    kept = _typehints.discard_init_args_on_class_path_change
    _typehints.discard_init_args_on_class_path_change = discard
    try:
        yield
    finally:
        _typehints.discard_init_args_on_class_path_change = kept
