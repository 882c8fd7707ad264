"""Arguments have the number types of their annotations, however they were given."""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import jaxtyping
import numpy as np
import pytest
import torch

import lit_gans
from lit_gans import RefusedInput
from lit_gans.common.annotations import _annotations, converted
from lit_gans.common.size import Size
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule, Number


class Sized(Protocol):
    def size(self) -> int: ...


CONVERTED = {
    "whole": (float, 0, 0.0),
    "text": (float, "1e-4", 1e-4),
    "numpy": (float, np.float32(0.5), 0.5),
    "numpy whole": (int, np.int64(3), 3),
    "torch": (float, torch.tensor(2), 2.0),
    "text of a whole number": (int, "64", 64),
    "optional": (float | None, 1, 1.0),
    "number or schedule": (Number, 1, 1.0),
    "tuple": (tuple[float, float], [0, 0.99], (0.0, 0.99)),
    "tuple of any length": (tuple[float, ...], (1, 2, 3), (1.0, 2.0, 3.0)),
    "list": (list[float], [1, "2"], [1.0, 2.0]),
    "array": (Sequence[int], np.array([1, 2]), [1, 2]),
    "mapping": (dict[str, float], {"cat": 1, "dog": "0.5"}, {"cat": 1.0, "dog": 0.5}),
    "mapping by number": (dict[int, float] | None, {0: 1}, {0: 1.0}),
    "description of a schedule": (Number, {"class_path": "LinearSchedule"}, LinearSchedule()),
    "nested": (list[tuple[str, float]], [["a", 1]], [("a", 1.0)]),
    "size": (Size, np.int64(32), 32),
    "rectangle": (Size, torch.Size([16, 32]), (16, 32)),
    "float in a union": (int | float, 1.5, 1.5),
}
KEPT = {
    "null": (float | None, None),
    "schedule": (Number, LinearSchedule(1, 0)),
    "literal": (Literal["auto"] | float, "auto"),
    "text where text is annotated": (str | int, "64"),
    "truth value": (bool, False),
    "whole number where it is annotated too": (int | float, 1),
    "tensor": (torch.Tensor, torch.tensor(1.0)),
    "anything": (Any, "text"),
    "protocol": (Sized, [1]),
    "no annotation": (None, np.float64(1)),
}
REFUSED = {
    "truth value": (float, True, "it=True must be a number."),
    "truth value in a tuple": (tuple[float, ...], (0.5, True), "it=True must be a number."),
    "truth value for a size": (Size, True, "it=True must be a whole number."),
    "fraction": (int, 1.5, "it=1.5 must be a whole number."),
    "text": (float, "fast", "it='fast' must be a number."),
    "text for a truth value": (bool, "no", "it='no' must be true or false."),
    "none": (float, None, "it=None is not valid: expected a number."),
    "list": (Number, [1], "it=[1] is not valid: expected a number or Schedule."),
    "mapping": (float, {"cat": 1}, "it={'cat': 1} is not valid: expected a number."),
    "mapping without a class": (Number, {"start": 1}, "class_path is missing: there is no such schedule"),
    "optimizer": (OptimizerConfig, None, "it=None is not valid: expected OptimizerConfig."),
    "name": (tuple[Literal["color", "cutout"], ...], ["colour"], "it='colour' is not valid: expected 'color'"),
    "letters": (tuple[Literal["color"], ...], "color", "it='color' is not valid: expected a list."),
    "name or size": (Literal["none"] | Size, "nowhere", "it='nowhere' is not valid: expected 'none' or a whole number"),
    "text expected": (str | None, 3, "it=3 is not valid: expected text or None."),
    "value of a mapping": (dict[str, float], {"cat": "many"}, "it.cat='many' must be a number."),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_number_gets_its_annotated_type(name):
    annotation, given, expected = CONVERTED[name]
    found = converted(given, annotation, "it")
    assert (repr(found), type(found)) == (repr(expected), type(expected))


@pytest.mark.parametrize("name", KEPT)
def test_other_values_stay_as_they_are(name):
    annotation, given = KEPT[name]
    assert converted(given, annotation, "it") is given


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_such_number_is_refused(name):
    annotation, given, sentence = REFUSED[name]
    with pytest.raises(RefusedInput) as refused:
        converted(given, annotation, "it")
    assert str(refused.value).startswith(sentence)


def test_a_default_may_be_of_another_type_than_its_annotation():
    class Sloppy(GenerativeCallback):
        def __init__(self, width: int = None) -> None:  # noqa: RUF013
            self.width = width

    assert Sloppy(None).width is Sloppy(width=None).width is None
    with pytest.raises(RefusedInput, match=r"width=2\.5 must be a whole number"):
        Sloppy(2.5)


# classes that only this package constructs, from arguments that it has checked
INTERNAL = {"Augmentations", "Frame", "Generated", "GeneratorGraph", "GradientState"}


def has_choices(annotation):
    return typing.get_origin(annotation) is Literal or any(map(has_choices, typing.get_args(annotation)))


def constructors_with_choices():
    """Yields each public class of the package and each of its arguments that is a choice."""
    for info in pkgutil.walk_packages(lit_gans.__path__, "lit_gans."):
        module = importlib.import_module(info.name) if not info.name.endswith("__main__") else None
        for name, cls in vars(module).items() if module else ():
            ours = inspect.isclass(cls) and cls.__module__ == info.name and not name.startswith("_")
            if ours and name not in INTERNAL and "__init__" in vars(cls):
                for argument, annotation in _annotations(inspect.unwrap(cls.__init__)).items():
                    if has_choices(annotation):
                        yield pytest.param(cls, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize(("cls", "argument"), [*constructors_with_choices()])
def test_a_value_that_is_no_choice_is_refused_by_every_constructor(cls, argument, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as it is for users
    with pytest.raises(RefusedInput, match=rf"^{argument}='no such choice'"):
        cls(**{argument: "no such choice"})
