"""Turns jsonargparse's messages about wrong values into sentences."""

from __future__ import annotations

import re
from textwrap import dedent

from lit_gans.common.annotations import NUMBERS
from lit_gans.common.errors import one_line

_KEY = re.compile(r'Parser key "(.+?)":\n(.*)', re.DOTALL)
_CLASS = re.compile(r"Problem with given class_path '.+?':\n(.*)", re.DOTALL)
_WRONG = re.compile(r"Expected a (.+?)\. Got value: (.*)", re.DOTALL)
_UNION = re.compile(
    r"Does not validate against any of the Union subtypes\nSubtypes: \[(.*?)\]\n"
    r"Errors:\n(.*?)\nGiven value type: .*?\nGiven value: (.*)",
    re.DOTALL,
)
_SIMPLE = re.compile(  # a type, or a further type of a union, that words can describe
    r"(?P<further>, )?(?:typing\.Literal\[(?P<literal>.*?)\]|<class '(?P<kind>\w+)'>|tuple\[(?P<items>[\w, ]+)\]"
    r"|tuple with (?P<num>\d+) elements|dict\[str, (?P<values>[\w, |.\[\]]+?)\])(?=, |$)"
)
_KINDS = {kind.__name__: words for kind, words in NUMBERS.items()}
_KINDS |= {"NoneType": "null", "str": "text", "tuple": "a list", "list": "a list", "dict": "a mapping"}


def sentence_of(message: str, key: str) -> str:
    """Returns a sentence for jsonargparse's message: the key, the value, and what is expected, or the deepest reason.

    Args:
        message: the message. If it has another form, it is returned on one line.
        key: key of the object, for the message of a constructor, which does not begin with a key.
    """
    if message.startswith("Parser key"):
        return _explained(message, "") or one_line(message)
    found = _UNION.fullmatch(message)
    reason = _reason(found[2], constructing=True) if found else None
    if reason is None:
        return one_line(message)
    return f"{key}: {reason}" if key else reason


def _explained(message: str, key: str) -> str | None:
    """Returns the sentence for a part of a message that is about a key, or None if it has another form."""
    message = dedent(message).strip()
    if found := _KEY.fullmatch(message):
        return _explained(found[2], f"{key}.{found[1]}" if key else found[1])
    if found := _CLASS.fullmatch(message):
        return _explained(found[1], key)
    if found := _UNION.fullmatch(message):
        types, errors, value = found.groups()
        reason = _reason(errors)
        return f"{key}: {reason}" if reason else _expected(types, value, key)
    if found := _WRONG.fullmatch(message):
        return _expected(found[1], found[2], key)
    return None


def _reason(errors: str, constructing: bool = False) -> str | None:
    """Returns what the first type of a union says that is more specific than which type it is.

    It begins with the argument of a class, whose key is unknown: a mapping of classes does not say which one it was.

    Args:
        errors: messages of all types.
        constructing: whether the value had a correct type, so that a message can be that of a constructor.
    """
    for error in re.split(r"^  - ", errors, flags=re.MULTILINE)[1:]:
        first, _, rest = error.partition("\n")
        error = f"{first}\n{dedent(rest)}".strip()
        if found := _UNION.fullmatch(error):
            reason = _reason(found[2], constructing)
        elif _CLASS.fullmatch(error):
            reason = _explained(error, "")
        else:
            reason = one_line(error) if constructing and not error.startswith("Expected ") else None
        if reason is not None:
            return reason
    return None


def _expected(types: str, value: str, key: str) -> str:
    return one_line(f"{key}={value}: expected {_SIMPLE.sub(_in_words, types)}.")


def _in_words(simple: re.Match[str]) -> str:
    if simple["literal"]:
        words = f"one of {simple['literal']}"
    elif simple["items"]:
        words = f"[{', '.join(_KINDS.get(kind, kind) for kind in simple['items'].split(', '))}]"
    elif simple["values"]:
        words = f"{{NAME: {simple['values']}}}"
    elif simple["num"]:
        words = f"a list with {simple['num']} elements"
    else:
        words = _KINDS.get(simple["kind"], simple["kind"])
    return f" or {words}" if simple["further"] else words
