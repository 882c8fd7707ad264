"""Optimizers of torch as one small, picklable and exportable value."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NoReturn

import torch
import yaml
from jsonargparse import ArgumentParser
from jsonargparse.typing import register_type
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from lit_gans.checkpoints.format import class_path, from_plain, to_plain
from lit_gans.common._compat.jsonargparse import nested_argument, previous_value
from lit_gans.common.annotations import converted
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_not_positive, refusing
from lit_gans.training import schedules
from lit_gans.training.schedules import Constant, Progress, Schedule

# a step of LBFGS needs a closure, SparseAdam sparse gradients, and Muon weights that are all matrices
_OTHERS = ("Optimizer", "LBFGS", "SparseAdam", "Muon")
_HOW = ("params", "foreach", "capturable", "differentiable", "fused")  # change only how torch computes
_FUSED = ("Adam", "AdamW")


@cache
def optimizer_names() -> tuple[str, ...]:
    """Returns the names of the optimizers of `torch.optim` that step any parameters from dense gradients alone."""
    classes = {name: cls for name, cls in vars(torch.optim).items() if isinstance(cls, type) and name not in _OTHERS}
    return tuple(sorted(name for name, cls in classes.items() if issubclass(cls, torch.optim.Optimizer)))


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    return MappingProxyType({key: each.default for key, each in parameters.items() if key not in _HOW})


class Optimizer:
    """An optimizer of `torch.optim` with its settings, for example `Optimizer("Adam", lr=2e-4, betas=(0.5, 0.999))`.

    The value is immutable, since all modules share the default values in signatures. `Optimizer(**old.init_args |
    {"lr": 1e-4})` returns a changed copy.

    Args:
        name: name of the class in `torch.optim`.
        schedule: schedule of the learning rate: its values are factors of `lr`.
        **options: arguments of the class, with torch's names and defaults; `lr` is the initial learning rate, before
            the schedule. Values in a list, such as `betas`, may be schedules.

    Attributes:
        options: read-only mapping of all arguments of the class, including those with torch's defaults.

    Raises:
        RefusedInput: an optimizer or an argument that torch does not have, or a value that is out of range.
    """

    name: str
    schedule: Schedule
    options: Mapping[str, Any]

    def __init__(self, name: str = "Adam", schedule: Schedule = Constant(), **options: Any) -> None:
        if name not in optimizer_names():
            raise RefusedInput(f"{name}: torch.optim has no such optimizer; {nearest(name, optimizer_names())}")
        unknown = next((key for key in options if key not in _defaults(name)), None)
        if unknown is not None:
            raise RefusedInput(f"{unknown}: {name} has no such argument; {nearest(unknown, _defaults(name))}")
        options = {
            key: converted(options.get(key, default), _annotation(default), key)
            for key, default in _defaults(name).items()
        }
        vars(self).update(name=name, schedule=schedule, options=MappingProxyType(options))
        if not isinstance(schedule, Schedule):
            raise RefusedInput(f"schedule={schedule!r} is not valid: expected a schedule, {{_target_: CLASS, ...}}.")
        self._refuse()

    @classmethod
    def from_plain(cls, plain: str | dict[str, Any]) -> Optimizer:
        """Returns the optimizer with a given name, or with the arguments in a mapping, `name` among them.

        As in Lightning's CLI, the name may begin with `torch.optim.`, and a mapping may have `class_path` and
        `init_args`.
        """
        arguments: dict[str, Any] = {"name": plain} if isinstance(plain, str) else dict(plain)
        path = arguments.pop("class_path", None)
        if path is not None:
            arguments = {**arguments.pop("init_args", {}), **arguments.pop("dict_kwargs", {}), **arguments}
            if path != class_path(cls):
                arguments = {"name": path, **arguments}
        if "name" not in arguments:
            raise RefusedInput(
                f"{plain} has no name: give the name of an optimizer of torch.optim, such as name: Adam."
            )
        if isinstance(arguments["name"], str):
            arguments["name"] = arguments["name"].removeprefix("torch.optim.")
        return cls(**{str(key): from_plain(value) for key, value in arguments.items()})

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"{name} of an Optimizer cannot be changed, because other modules may share it: construct a new one,"
            " Optimizer(**old.init_args | {NAME: VALUE})."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} of an Optimizer cannot be deleted.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and self.init_args == other.init_args

    def __hash__(self) -> int:
        return hash((self.name, self.schedule, frozenset(self.options.items())))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy is not picklable
        return partial(type(self), **self.init_args), ()

    def __repr__(self) -> str:
        return f"Optimizer({', '.join(f'{name}={value!r}' for name, value in self.init_args.items())})"

    @property
    def init_args(self) -> dict[str, Any]:
        """The arguments that construct this value."""
        return {"name": self.name, **self.options, "schedule": self.schedule}

    def _refuse(self) -> None:
        """Raises `RefusedInput` for what torch refuses, and for values with which it would silently train nothing."""
        for end in (0, 1):
            options = self._with(lambda schedule, end=end: schedule.ends[end])  # type: ignore[misc]
            for key, value in options.items():
                if not _is_like(value, _defaults(self.name)[key]):
                    raise RefusedInput(f"{key}={value!r} must be finite, and like torch's {_defaults(self.name)[key]}.")
                if key in ("momentum", "alpha") and not 0 <= value < 1:
                    raise RefusedInput(f"{key}={value} must lie in [0, 1).")
            refuse_not_positive(lr=options["lr"])
            try:
                getattr(torch.optim, self.name)([nn.Parameter(torch.empty(0))], **options)
            except (ValueError, TypeError, RuntimeError, AttributeError) as error:
                raise RefusedInput(f"{self.name}: {one_line(error)}, in {options}.") from error

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        """Returns the optimizer of one network; `fused` selects the fused implementation of Adam and AdamW."""
        how = {"fused": True} if fused and self.name in _FUSED else {}
        optimizer: torch.optim.Optimizer = getattr(torch.optim, self.name)(parameters, **self._at(Progress()), **how)
        return optimizer

    def scheduled(self, progress: Progress) -> dict[str, Any]:
        """Returns the options of the parameter groups that change over the training, except the learning rate."""
        tuples = {key: value for key, value in self.options.items() if isinstance(value, tuple)}
        changing = [key for key, value in tuples.items() if any(isinstance(each, Schedule) for each in value)]
        return {key: self._at(progress)[key] for key in changing}

    def _at(self, progress: Progress) -> dict[str, Any]:
        return self._with(lambda schedule: schedule.at(progress))

    def _with(self, value_of: Callable[[Schedule], float]) -> dict[str, Any]:
        """Returns the options with a number in place of each schedule in a tuple."""

        def number(each: Any) -> Any:
            return value_of(each) if isinstance(each, Schedule) else each

        options = self.options.items()
        return {key: tuple(map(number, value)) if isinstance(value, tuple) else value for key, value in options}


def _annotation(default: Any) -> Any:
    """Returns the type of an option from torch's default for it; torch annotates optional numbers with it, too."""
    if isinstance(default, tuple):
        return tuple[float | Schedule | None, ...]
    return bool if isinstance(default, bool) else float


def _from_jsonargparse(value: Any) -> Optimizer:
    """Returns the optimizer that a command line or a configuration describes: by its name, by a mapping, or by one
    changed argument. A mapping without a name changes the previous optimizer.
    """
    nested = nested_argument(value)
    if nested is None and not isinstance(value, str | dict):
        raise ValueError(f"{value!r}: expected the name of an optimizer of torch.optim, or a mapping of its arguments")
    previous = previous_value(Optimizer)
    try:
        if nested is not None:
            return _changed(previous or Optimizer(), *nested)
        if isinstance(value, dict):
            value = _with_schedules(value)
            if previous is not None and not {"name", "class_path"} & value.keys():
                value = {**previous.init_args, **value}
        return Optimizer.from_plain(value)
    except RefusedInput as error:
        raise ValueError(str(error)) from error  # to which jsonargparse adds the key


def _with_schedules(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of an optimizer with a schedule in place of each mapping that describes one."""
    nested = ("init_args", "dict_kwargs")
    return {
        name: _with_schedules(value) if name in nested and isinstance(value, dict) else _parsed(name, value)
        for name, value in arguments.items()
    }


def _parsed(name: str, value: Any) -> Any:
    """Returns an argument with a schedule in place of each mapping that describes one.

    `from_plain`, which also reads checkpoints, imports nothing. A class that the user names may be imported.
    """
    if isinstance(value, list):
        return [_parsed(name, item) for item in value]
    if not (isinstance(value, dict) and "class_path" in value):
        return value
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--schedule", type=Schedule)
    with _refusing_schedule(name, value["class_path"]):
        return parser.instantiate(parser.parse_object({"schedule": value})).schedule


@contextmanager
def _refusing_schedule(path: str, value: Any, previous: Schedule | None = None) -> Iterator[None]:
    """Raises `RefusedInput` where jsonargparse raises an error for a schedule or one of its arguments.

    Args:
        path: name of the argument of the optimizer.
        value: its value.
        previous: schedule that an argument of a schedule changes.
    """
    try:
        yield
    except RefusedInput:
        raise
    except Exception as error:
        names = [
            name for name, each in vars(schedules).items() if isinstance(each, type) and issubclass(each, Schedule)
        ]
        public = {name for name in names if name != "Schedule" and not name.startswith("_")}
        if "." in path and isinstance(previous, Constant):
            reason = (
                "the schedule is Constant, which has no arguments: first choose another one, such as schedule=Linear"
            )
        elif "." not in str(value) and "." not in path and value not in public:
            reason = f"there is no such schedule; {nearest(str(value), public)}"
        else:
            reason = one_line(error)
        raise RefusedInput(f"{path}={value} is not valid: {reason.rstrip('.')}.") from error


def _changed(previous: Optimizer, path: str, text: Any) -> Optimizer:
    """Returns an optimizer with one argument changed; another name brings torch's defaults.

    Args:
        previous: the optimizer.
        path: name of the argument; names of a schedule's arguments begin with `schedule.`.
        text: its value on a command line.
    """
    path = path.removeprefix("dict_kwargs.")
    key = path.partition(".")[0]
    if key == "name":
        changed = Optimizer.from_plain(text)
        return previous if changed.name == previous.name else changed
    if key == "schedule":
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--schedule", type=Schedule, default=to_plain(previous.schedule))
        with _refusing_schedule(path, text, previous.schedule):
            value = parser.instantiate(parser.parse_args([f"--{path}={text}"])).schedule
    else:
        with refusing(f"{key}={text} is not valid"):
            value = yaml.safe_load(text) if isinstance(text, str) else text
        value = _parsed(key, value)
    return Optimizer(**{**previous.init_args, key: value})


def _to_jsonargparse(optimizer: Optimizer) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(optimizer.init_args)
    return plain


# its arguments are those of torch's class, which a signature cannot say
register_type(Optimizer, _to_jsonargparse, _from_jsonargparse)


class OptionScheduler(LRScheduler):
    """Sets the learning rate of an optimizer, and its other options that have a schedule, in each iteration.

    Args:
        optimizer: the optimizer.
        settings: its settings, with their schedules.
        progress_at: returns the progress of the training, given the number of finished iterations.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, settings: Optimizer, progress_at: Callable[[int], Progress]
    ) -> None:
        self.settings, self.progress_at = settings, progress_at
        super().__init__(optimizer)

    def step(self, epoch: int | None = None) -> None:
        if self.last_epoch > 0:
            return super().step(epoch)
        with warnings.catch_warnings():  # torch doubts the order where a network starts late, and has no step before
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            return super().step(epoch)

    def get_lr(self) -> list[float | Tensor]:
        progress = self.progress_at(self.last_epoch)
        for group in self.optimizer.param_groups:
            group.update(self.settings.scheduled(progress))
        return [rate * self.settings.schedule.at(progress) for rate in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        ours = ("settings", "progress_at")  # which the module has
        return {name: value for name, value in super().state_dict().items() if name not in ours}


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value is of the kind of torch's default, which may be None, and finite."""
    if isinstance(default, tuple):
        return isinstance(value, tuple) and len(value) == len(default) and all(map(_is_like, value, default))
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or isinstance(value, int | float)


def arrange_as_weights(optimizer: torch.optim.Optimizer) -> None:
    """Gives loaded moments the memory layout of their weights.

    Strategies that shard flat weights store contiguous moments, and weights may be `channels_last`. torch's fused step
    on the CPU reads both in the order of their memory, and would silently pair weights with moments of others.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
