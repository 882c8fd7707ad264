"""Names of networks, modules, parameters and optimizers: the variables of the script that refer to them."""

from __future__ import annotations

import inspect
import sysconfig
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")} | {str(Path(__file__).parents[1])}
)
_LONGEST = 1000  # maximum length of a list that is searched for a network


class Names:
    """Names networks, their modules and parameters, and optimizers.

    The name of a network consists of a variable of the script and the network's class, such as `critic (PatchGAN)`.
    Modules and parameters also have a path within their network: `layers.0.weight of critic (PatchGAN)`. References are
    weak, so that nothing is kept alive.
    """

    def __init__(self) -> None:
        self._networks: dict[str, weakref.ref[nn.Module]] = {}  # as the script calls them: they can be wrapped
        self._modules: dict[int, tuple[str, str]] = {}  # network that contains a module, and the module's path, by id
        self._parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self._optimizers: dict[int, tuple[weakref.ref[Optimizer], str]] = {}
        self._of_optimizers: list[str] = []  # also of optimizers that no longer exist: no name is used twice

    def of_module(self, module: nn.Module) -> tuple[str, str]:
        """Returns the name of the network that contains a module, and the path of the module within this network.

        The module can be the network itself. A module that has no name yet, and its network, get one.
        """
        known = self._modules.get(id(module))
        if known is not None and self.network(known[0]) is not None:
            return known
        variable, module_of_variable = _variable(module) or _variable(unwrapped(module)) or (None, module)
        network = unwrapped(module_of_variable)
        kind = type(network).__name__
        name = _unused(kind if variable is None else f"{variable} ({kind})", [own for own, _ in self.networks()])
        self._networks[name] = weakref.ref(module_of_variable)
        names = {id(module_of_variable): (name, "")}
        names |= {id(own): (name, path) for path, own in network.named_modules()}
        self._modules |= {id(module): names[id(unwrapped(module))]} | names
        for path, parameter in network.named_parameters():
            self._parameters[id(parameter)] = weakref.ref(parameter), f"{path} of {name}"
        return self._modules[id(module)]

    def knows(self, module: nn.Module) -> bool:
        """Returns whether a module has a name."""
        return id(module) in self._modules

    def path(self, module: nn.Module) -> str:
        """Returns the path of a module within its network, and the name of the network."""
        return _path_of(*self.of_module(module))

    def of_uncalled(self, module: nn.Module) -> str:
        """Returns the name of a module that the script may never have called; empty if no variable refers to it."""
        if self.knows(module):
            return _path_of(*self._modules[id(module)])
        found = _variable(module)
        if found is None:
            return ""
        variable, whole = found[0], unwrapped(found[1])
        path = next((path for path, part in whole.named_modules() if part is module), "")
        return _path_of(f"{variable} ({type(whole).__name__})", path)

    def network(self, name: str) -> nn.Module | None:
        """Returns a network, or None if it no longer exists or has never been called."""
        reference = self._networks.get(name)
        return None if reference is None else reference()

    def networks(self) -> Iterator[tuple[str, nn.Module]]:
        """Yields the names and the networks that still exist."""
        for name, reference in [*self._networks.items()]:
            network = reference()
            if network is not None:
                yield name, network

    def of_parameter(self, parameter: Tensor) -> str:
        """Returns the path of a parameter and the name of its network; empty if the network was not called."""
        reference, name = self._parameters.get(id(parameter), (None, ""))
        return name if reference is not None and reference() is parameter else ""

    def network_of(self, parameter: Tensor) -> str:
        """Returns the name of the network of a parameter; empty if the network was not called."""
        return self.of_parameter(parameter).partition(" of ")[2]

    def of_optimizer(self, optimizer: Optimizer) -> str:
        """Returns the name of an optimizer: its class and the networks whose parameters it steps."""
        reference, name = self._optimizers.get(id(optimizer), (None, ""))
        if reference is not None and reference() is optimizer:
            return name
        stepped = [name for name in map(self.of_parameter, parameters_of(optimizer)) if name]
        networks = dict.fromkeys(each.partition(" of ")[2] for each in stepped)
        parts = [_part(network, stepped, [own for _, own in self._parameters.values()]) for network in networks]
        name = f"{type(optimizer).__name__} of {', '.join(parts) or 'unknown parameters'}"
        self._of_optimizers.append(_unused(name, self._of_optimizers))
        self._optimizers[id(optimizer)] = weakref.ref(optimizer), self._of_optimizers[-1]
        return self._of_optimizers[-1]

    def optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        """Yields the names and the optimizers that still exist."""
        for reference, name in [*self._optimizers.values()]:
            optimizer = reference()
            if optimizer is not None:
                yield name, optimizer


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Returns the parameters of an optimizer in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def unwrapped(module: nn.Module) -> nn.Module:
    """Removes wrappers such as DistributedDataParallel, and returns the inner network."""
    while type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule") or (
        type(module).__module__.startswith(("deepspeed", "lightning.fabric.wrappers")) and hasattr(module, "module")
    ):
        inner = getattr(module, "_orig_mod", None) or module.module
        if not isinstance(inner, nn.Module):
            break
        module = inner
    return module


def line_of_script() -> str:
    """Returns the file and line of the innermost frame of the script."""
    frame = next(_frames(), None)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def called_by_scaler() -> bool:
    """Returns whether a gradient scaler of torch called the current step."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == torch.amp.GradScaler.__module__:
            return True
        frame = frame.f_back
    return False


def _path_of(network: str, path: str) -> str:
    """Returns the path of a module within its network, and the name of the network."""
    return f"{path} of {network}" if path else network


def _unused(name: str, used: Sequence[str]) -> str:
    """Returns a name, with a number if it is used."""
    unused, number = name, 1
    while unused in used:
        number += 1
        unused = f"{name} {number}"
    return unused


def _part(network: str, stepped: Sequence[str], known: Sequence[str]) -> str:
    """Returns the name of a network. If only some parameters are stepped, prepends the names of their child modules."""
    stepped, every = ([each for each in names if each.endswith(f" of {network}")] for names in (stepped, known))
    children = dict.fromkeys(each.partition(".")[0] for each in stepped)
    return network if len(stepped) == len(every) else f"{', '.join(children)} of {network}"


# ---- variables of the script


def _frames() -> Iterator[FrameType]:
    """Yields the stack frames of the script, innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*_LIBRARIES, "<")):
            yield frame
        frame = frame.f_back


def _variable(module: nn.Module) -> tuple[str, nn.Module] | None:
    """Returns the name and value of the script's variable that refers to a module or contains the module.

    Attributes of `self` count as variables. The outermost frame that has such a variable is used. In inner frames,
    names are often arguments, which refer to a different network in each call. If a list contains several networks of
    the same class, the name is the position in the list. The name of a loop variable would be equal for all networks in
    the list.
    """
    for frame in reversed([*_frames()]):
        own = frame.f_locals.get("self")
        attributes = {**vars(own), **getattr(own, "_modules", {})} if hasattr(own, "__dict__") else {}
        attributes.pop("_modules", None)
        scopes = frame.f_locals, attributes, frame.f_globals
        for names in scopes:
            plain = next((str(name) for name, value in names.items() if value is module and name != "self"), None)
            in_list = next(filter(None, (_position(str(name), value, module) for name, value in names.items())), None)
            if name := in_list or plain:
                return name, module
        around = [
            each for names in scopes for each in names.items() if each[0] != "self" and _contains(each[1], module)
        ]
        if around:
            name, value = min(around, key=lambda each: len([*each[1].modules()]))
            return str(name), value
        alone = (_position(str(name), value, module, 1) for names in scopes for name, value in names.items())
        if name := next(filter(None, alone), None):
            return name, module
    return None


def _contains(value: Any, module: nn.Module) -> bool:
    """Returns whether a value is a network that contains a module. The script might call only methods of this network.

    A LightningModule does not count as a network, because it contains all networks.
    """
    if not isinstance(value, nn.Module) or hasattr(unwrapped(value), "training_step"):
        return False
    return any(part is module for part in value.modules())


def _position(name: str, networks: Any, module: nn.Module, fewest: int = 2) -> str | None:
    """Returns a module's position in a list or dict as a name, if at least `fewest` items have the module's class."""
    if not isinstance(networks, list | tuple | dict | nn.ModuleList | nn.ModuleDict) or len(networks) > _LONGEST:
        return None
    items = [*(networks.items() if isinstance(networks, Mapping | nn.ModuleDict) else enumerate(networks))]
    alike = [(key, value) for key, value in items if type(value) is type(module)]
    return next((f"{name}[{key!r}]" for key, value in alike if value is module and len(alike) >= fewest), None)
