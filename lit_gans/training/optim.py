"""Settings of a `torch.optim` optimizer as a small object that can be pickled and exported."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from lit_gans.checkpoints.format import class_path, to_plain
from lit_gans.common.annotations import converted
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_not_positive
from lit_gans.common.parsing import register_value
from lit_gans.training.schedules import ConstantSchedule, Progress, Schedule

# unsupported: LBFGS needs a closure for its step, SparseAdam needs sparse gradients, Muon supports matrices only
_UNSUPPORTED = ("Optimizer", "LBFGS", "SparseAdam", "Muon")
_NOT_OPTIONS = ("params", "foreach", "capturable", "differentiable", "fused")  # the last four choose an implementation
_FUSED = ("Adam", "AdamW")


@cache
def optimizer_names() -> tuple[str, ...]:
    """Returns the names of all `torch.optim` optimizers that need only dense gradients and support any shape."""
    everything = vars(torch.optim).items()
    classes = {name: cls for name, cls in everything if isinstance(cls, type) and name not in _UNSUPPORTED}
    return tuple(sorted(name for name, cls in classes.items() if issubclass(cls, torch.optim.Optimizer)))


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    return MappingProxyType({key: option.default for key, option in parameters.items() if key not in _NOT_OPTIONS})


class OptimizerConfig:
    """Settings of a `torch.optim` optimizer, for example `OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999))`.

    Instances are immutable, because all modules share the default values in signatures.
    `OptimizerConfig(**old.init_args | {"lr": 1e-4})` returns a changed copy.

    Args:
        name: name of the class in `torch.optim`.
        schedule: schedule of the learning rate. Its values are factors of `lr`.
        **options: arguments of the class, with torch's names and defaults. `lr` is the initial learning rate, before
            the schedule is applied. The elements of a list, such as `betas`, can be schedules.

    Attributes:
        options: read-only mapping of all arguments of the class, including arguments left at torch's defaults.

    Raises:
        RefusedInput: if torch does not have the optimizer or an argument, or if a value is out of range.
    """

    name: str
    schedule: Schedule
    options: Mapping[str, Any]

    def __init__(self, name: str = "Adam", schedule: Schedule = ConstantSchedule(), **options: Any) -> None:
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
        self._raise_if_invalid()

    @classmethod
    def from_plain(cls, plain: str | dict[str, Any]) -> OptimizerConfig:
        """Returns the optimizer given by its name, or by a mapping of arguments that includes `name`.

        As in Lightning's CLI, the name can begin with `torch.optim.`, and a mapping can have `class_path` and
        `init_args`.
        """
        arguments: dict[str, Any] = {"name": plain} if isinstance(plain, str) else dict(plain)
        path = arguments.pop("class_path", None)
        if path is not None:
            arguments = {**arguments.pop("init_args", {}), **arguments.pop("dict_kwargs", {}), **arguments}
            if path != class_path(cls):
                arguments = {"name": path, **arguments}
        if "name" not in arguments:
            raise RefusedInput(f"{plain} has no name: set the name of an optimizer of torch.optim, such as name: Adam.")
        if isinstance(arguments["name"], str):
            arguments["name"] = arguments["name"].removeprefix("torch.optim.")
        if "schedule" in arguments:
            arguments["schedule"] = converted(arguments["schedule"], Schedule, "schedule")
        return cls(**{str(key): value for key, value in arguments.items()})

    @classmethod
    def changed(cls, previous: OptimizerConfig | None, changes: Mapping[str, Any]) -> OptimizerConfig:
        """Returns an optimizer that differs from a previous optimizer in some arguments.

        A different name resets all other arguments to torch's defaults. A mapping without `class_path` changes the
        arguments of the previous schedule.
        """
        name = changes.get("name")
        chosen = previous or cls() if name is None else cls.from_plain(name)
        if previous is not None and chosen.name == previous.name:
            chosen = previous
        arguments = {**chosen.init_args, **changes, "name": chosen.name}
        if isinstance(arguments["schedule"], dict):
            arguments["schedule"] = Schedule.changed(chosen.schedule, arguments["schedule"])
        return cls.from_plain(arguments)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"{name} of an OptimizerConfig cannot be changed, because other modules may share it: construct a new one,"
            " OptimizerConfig(**old.init_args | {NAME: VALUE})."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} of an OptimizerConfig cannot be deleted.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptimizerConfig) and self.init_args == other.init_args

    def __hash__(self) -> int:
        return hash((self.name, self.schedule, frozenset(self.options.items())))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy is not picklable
        return partial(type(self), **self.init_args), ()

    def __repr__(self) -> str:
        return f"OptimizerConfig({', '.join(f'{name}={value!r}' for name, value in self.init_args.items())})"

    @property
    def init_args(self) -> dict[str, Any]:
        """The arguments that construct this value."""
        return {"name": self.name, **self.options, "schedule": self.schedule}

    def _raise_if_invalid(self) -> None:
        """Raises `RefusedInput` if torch does not accept the options, or would silently train nothing with them."""
        for end in (0, 1):
            options = self._with(lambda schedule, end=end: schedule.ends[end])  # type: ignore[misc]
            for key, value in options.items():
                if not _is_like(value, _defaults(self.name)[key]):
                    raise RefusedInput(
                        f"{key}={value!r} must be finite, and of the same type as torch's default,"
                        f" {_defaults(self.name)[key]}."
                    )
                if key in ("momentum", "alpha") and not 0 <= value < 1:
                    raise RefusedInput(f"{key}={value} must lie in [0, 1).")
            refuse_not_positive(lr=options["lr"])
            try:
                getattr(torch.optim, self.name)([nn.Parameter(torch.empty(0))], **options)
            except (ValueError, TypeError, RuntimeError, AttributeError) as error:
                raise RefusedInput(f"{self.name}: {one_line(error)}, in {options}.") from error

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        """Returns the optimizer of one network; `fused` selects the fused implementation of Adam and AdamW."""
        fuse = {"fused": True} if fused and self.name in _FUSED else {}
        optimizer: torch.optim.Optimizer = getattr(torch.optim, self.name)(parameters, **self._at(Progress()), **fuse)
        return optimizer

    def scheduled(self, progress: Progress) -> dict[str, Any]:
        """Returns the current values of all options with a schedule, except the learning rate."""
        tuples = {key: value for key, value in self.options.items() if isinstance(value, tuple)}
        changing = [key for key, value in tuples.items() if any(isinstance(item, Schedule) for item in value)]
        return {key: self._at(progress)[key] for key in changing}

    def at(self, progress: Progress) -> dict[str, Any]:
        """Returns the current values of all options, including the scheduled learning rate."""
        return self._at(progress) | {"lr": self.options["lr"] * self.schedule.at(progress)}

    def _at(self, progress: Progress) -> dict[str, Any]:
        return self._with(lambda schedule: schedule.at(progress))

    def _with(self, value_of: Callable[[Schedule], float]) -> dict[str, Any]:
        """Returns the options, replacing each schedule in a tuple by a number."""

        def number(item: Any) -> Any:
            return value_of(item) if isinstance(item, Schedule) else item

        options = self.options.items()
        return {key: tuple(map(number, value)) if isinstance(value, tuple) else value for key, value in options}


def _annotation(default: Any) -> Any:
    """Returns the type of an option, inferred from torch's default. A None default stands for an optional number."""
    if isinstance(default, tuple):
        return tuple[float | Schedule | None, ...]
    return bool if isinstance(default, bool) else float


def _serialize(optimizer: OptimizerConfig) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(optimizer.init_args)
    return plain


# registered as a type, since the arguments depend on torch's class and jsonargparse cannot read them from a signature
register_value(OptimizerConfig, _serialize)


class OptionScheduler(LRScheduler):
    """Updates the learning rate and all other scheduled options of an optimizer in each iteration.

    Args:
        optimizer: the optimizer to update.
        settings: settings of the optimizer, with their schedules.
        progress_at: function that returns the progress of the training for a number of finished iterations.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, settings: OptimizerConfig, progress_at: Callable[[int], Progress]
    ) -> None:
        self.settings, self.progress_at = settings, progress_at
        super().__init__(optimizer)

    def step(self, epoch: int | None = None) -> None:
        if self.last_epoch > 0:
            return super().step(epoch)
        # torch warns if a scheduler steps before its optimizer, which happens if the training of a network starts later
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            return super().step(epoch)

    def get_lr(self) -> list[float | Tensor]:
        progress = self.progress_at(self.last_epoch)
        for group in self.optimizer.param_groups:
            group.update(self.settings.scheduled(progress))
        return [rate * self.settings.schedule.at(progress) for rate in self.base_lrs]

    def configure(self) -> None:
        """Sets all options of the optimizer to those of `settings`, in place of the options of a loaded checkpoint."""
        options = self.settings.at(self.progress_at(self.last_epoch))
        self.base_lrs = [self.settings.options["lr"] for _ in self.base_lrs]
        for group, rate in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group.update(options | {"initial_lr": rate})

    def state_dict(self) -> dict[str, Any]:
        from_module = ("settings", "progress_at")  # the module provides these values again after a resume
        return {name: value for name, value in super().state_dict().items() if name not in from_module}


def _is_like(value: Any, default: Any) -> bool:
    """Returns whether a value is finite and has the type of torch's default.

    If the default is None, None and finite numbers are accepted.
    """
    if isinstance(default, tuple):
        return isinstance(value, tuple) and len(value) == len(default) and all(map(_is_like, value, default))
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or isinstance(value, int | float)


def keep_implementation(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Returns loaded optimizer state in which `fused` is that of the optimizer, which depends on device and precision.

    torch would load the value of the checkpoint. A gradient scaler passes `found_inf` to every optimizer that was
    constructed with `fused=True`, and no other implementation accepts this tensor.
    """
    if "fused" not in optimizer.defaults:
        return state
    return {
        **state,
        "param_groups": [{**group, "fused": optimizer.defaults["fused"]} for group in state["param_groups"]],
    }


def arrange_as_weights(optimizer: torch.optim.Optimizer) -> None:
    """Converts loaded optimizer moments to the memory layout of their weights.

    Strategies that shard flat weights store contiguous moments, but the weights can be `channels_last`. torch's fused
    step on the CPU reads weights and moments in memory order. With different layouts, it would silently pair weights
    with wrong moments.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
