"""The networks of a module, as the strategies see them: what one optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.torch import tree_leaves
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import LightningModule, LightningOptimizer


@dataclass(frozen=True, eq=False)
class OptimizedNetwork:
    """The parameters that one optimizer steps, wherever they are in the module.

    Attributes:
        name: the paths of the largest submodules that belong to the network alone, joined by "+".
        optimizer: steps the network.
        parameters: in the optimizer's order.
        names: all names of the parameters in the module, also those of tied ones.
        roots: the largest submodules that have a `forward` and whose parameters all belong to the network, by path.
        loose: the parameters in no root, by name, such as a parameter of the module itself.
    """

    name: str
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    names: frozenset[str]
    roots: dict[str, nn.Module]
    loose: dict[str, nn.Parameter]

    @property
    def trains(self) -> bool:
        """Whether any of its parameters currently requires a gradient."""
        return any(parameter.requires_grad for parameter in self.parameters)

    def has(self, path: str) -> bool:
        """Returns whether a path is the network's name, or names a submodule or parameter of it."""
        return path == self.name or any(name == path or name.startswith(f"{path}.") for name in self.names)


def find_networks(optimizers: Iterable[torch.optim.Optimizer], module: LightningModule) -> dict[str, OptimizedNetwork]:
    """Returns what each optimizer steps, by name.

    Raises:
        RefusedInput: two optimizers step the same parameter, or an optimizer steps one that is frozen or outside the
            module, so that its gradient would not be averaged over the ranks.
    """
    names = names_of_parameters(module)
    networks: dict[str, OptimizedNetwork] = {}
    stepped: set[int] = set()
    for optimizer in optimizers:
        parameters = parameters_of(optimizer)
        for parameter in parameters:
            _refuse_parameter(parameter, names.get(id(parameter)), stepped)
        stepped |= {id(parameter) for parameter in parameters}
        network = _network(optimizer, parameters, names, module)
        networks[network.name] = network
    return networks


def refuse_unstepped(networks: Mapping[str, OptimizedNetwork], module: LightningModule) -> None:
    """Raises `RefusedInput` if a parameter requires a gradient, but no optimizer steps it."""
    stepped = {id(parameter) for network in networks.values() for parameter in network.parameters}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in stepped:
            raise RefusedInput(
                f"no optimizer steps {name}, which requires a gradient: freeze it with requires_grad_(False), or give"
                " it to an optimizer."
            )


def network_named(networks: Mapping[str, OptimizedNetwork], path: str) -> OptimizedNetwork:
    """Returns the network that a backward names by its name or the path of any of its submodules or parameters.

    Raises:
        RefusedInput: the path belongs to no network, or to several.
    """
    found = [network for network in networks.values() if network.has(path)]
    if len(found) != 1:
        number = "several networks" if found else "no network"
        raise RefusedInput(
            f"manual_backward(loss, network={path!r}) names {number} of the module: it has {', '.join(networks)}."
        )
    return found[0]


def trained_network(networks: Mapping[str, OptimizedNetwork]) -> OptimizedNetwork:
    """Returns the only network that is not frozen.

    Raises:
        RefusedInput: there are several, or none.
    """
    found = [network for network in networks.values() if network.trains]
    if len(found) != 1:
        raise RefusedInput(
            f"a backward must train exactly one network, but {[network.name for network in found]} have parameters that"
            " require gradients: freeze the others (toggle_optimizer does), or name it with"
            " manual_backward(loss, network=NAME)."
        )
    return found[0]


def stepped_network(
    networks: Mapping[str, OptimizedNetwork], optimizer: torch.optim.Optimizer | LightningOptimizer
) -> OptimizedNetwork:
    """Returns the network that an optimizer, or Lightning's wrapper of it, steps.

    Raises:
        RefusedInput: `configure_optimizers` did not return the optimizer.
    """
    bare = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
    for network in networks.values():
        if network.optimizer is bare:
            return network
    raise RefusedInput("an optimizer steps that configure_optimizers did not return: return it from there.")


def penalized_networks(module: LightningModule) -> tuple[str, ...]:
    """Returns the names of the networks whose gradient a module differentiates twice; none by default."""
    return tuple(getattr(module, "penalized_networks", ()))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Returns the parameters of an optimizer, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def names_of_parameters(module: nn.Module) -> dict[int, list[str]]:
    """Returns all names of each parameter, by its id, those with the shortest path first."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {key: sorted(found, key=lambda name: name.count(".")) for key, found in names.items()}


def _refuse_parameter(parameter: nn.Parameter, names: list[str] | None, stepped: set[int]) -> None:
    if names is None:
        raise RefusedInput(
            f"an optimizer steps a parameter of shape {tuple(parameter.shape)} that is not in the module, so that its"
            " gradients would not be averaged over the ranks: make what holds it an attribute of the module."
        )
    if id(parameter) in stepped:
        raise RefusedInput(
            f"two optimizers step {names[0]}: give it to one of them, with a parameter group for each setting."
        )
    if not parameter.requires_grad:
        raise RefusedInput(
            f"an optimizer steps {names[0]}, which is frozen (requires_grad=False) when the training begins, so that"
            " its gradients would not be averaged over the ranks: unfreeze it before the training, or leave it out of"
            " the optimizer."
        )


def _network(
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    names: Mapping[int, list[str]],
    module: LightningModule,
) -> OptimizedNetwork:
    owned = {id(parameter) for parameter in parameters}
    pieces, outside = largest_modules(module, owned, containers=True), set(owned)
    for piece in pieces.values():
        outside -= {id(parameter) for parameter in piece.parameters()}
    single = [names[id(parameter)][0] for parameter in parameters if id(parameter) in outside]
    roots = largest_modules(module, owned)
    inside = {id(parameter) for root in roots.values() for parameter in root.parameters()}
    return OptimizedNetwork(
        name=_joined([*pieces, *single]),
        optimizer=optimizer,
        parameters=parameters,
        names=frozenset(name for key in owned for name in names[key]),
        roots=roots,
        loose={names[id(parameter)][0]: parameter for parameter in parameters if id(parameter) not in inside},
    )


def _joined(paths: list[str]) -> str:
    return "+".join(paths) if len(paths) < 4 else f"{paths[0]}+{len(paths) - 1}_others"


def largest_modules(module: nn.Module, owned: set[int], containers: bool = False) -> dict[str, nn.Module]:
    """Returns the largest submodules that have parameters, all of them owned, by their shortest paths.

    Without `containers`, submodules without a `forward`, such as a ModuleList, are replaced by what they contain.
    """
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    level = [("", module)]
    while level:  # breadth first and small ones first: an average that holds the online model is not the network
        children = [(path + name, child) for path, parent in level for name, child in parent.named_children()]
        level, complete = [], set()
        for path, child in sorted(children, key=lambda item: len([*item[1].modules()])):
            parameters = {id(parameter) for parameter in child.parameters()}
            if id(child) in seen or not parameters & owned:
                continue
            inner = {id(each) for each in child.modules()}
            alone = parameters <= owned and not inner & seen
            if alone and (containers or type(child).forward is not nn.Module.forward):
                complete.add(path)
                seen |= inner
            else:
                level.append((f"{path}.", child))
        found |= {path: child for path, child in children if path in complete}
    return found


def leaves_of(loss: Tensor) -> set[int]:
    """Returns the ids of the parameters that a backward of a loss reaches."""
    found: set[int] = set()
    seen, rest = set(), [loss.grad_fn]
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        rest += [earlier for earlier, _ in node.next_functions]
    return found


def call_in_backward(network: nn.Module, function: Callable[[Tensor], None]) -> RemovableHandle:
    """Calls a function with the gradient of each output of a network; returns the hook's handle."""

    @torch.compiler.disable
    def after_forward(_: nn.Module, inputs: Any, outputs: Any) -> None:
        for output in tensors_in(outputs):
            if output.requires_grad:
                output.register_hook(function)

    return network.register_forward_hook(after_forward)


def refusing_penalties(sentence: str) -> Callable[[Tensor], None]:
    """Returns a function for `call_in_backward` that raises `RefusedInput` with a message in a gradient penalty."""

    def refuse(_: Tensor) -> None:
        if torch.is_grad_enabled():  # in a backward: with create_graph=True
            raise RefusedInput(sentence)

    return refuse


def tensors_in(outputs: Any) -> list[Tensor]:
    """Returns the tensors in the outputs of a module, also those in attributes of objects such as a distribution."""
    found: dict[int, Tensor] = {}
    seen: set[int] = set()
    rest = [outputs]
    while rest:
        for leaf in tree_leaves(rest.pop()):
            if isinstance(leaf, Tensor):
                found[id(leaf)] = leaf
            elif id(leaf) not in seen and not isinstance(leaf, nn.Module | type):
                seen.add(id(leaf))
                rest += vars(leaf).values() if hasattr(leaf, "__dict__") else ()
    return list(found.values())
