"""The networks of a module: for the strategies, a network consists of the parameters that one optimizer steps."""

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
        name: paths of the largest submodules whose parameters all belong to the network, joined by "+".
        optimizer: optimizer that steps the network.
        parameters: parameters of the network, in the optimizer's order.
        names: names of the parameters in the module. A tied parameter has several names.
        roots: largest submodules, by path, that have a `forward` and whose parameters all belong to the network.
        loose: parameters outside of all roots, by name, such as a parameter of the module itself.
    """

    name: str
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    names: frozenset[str]
    roots: dict[str, nn.Module]
    loose: dict[str, nn.Parameter]

    @property
    def trains(self) -> bool:
        """Whether any parameter of the network currently requires a gradient."""
        return any(parameter.requires_grad for parameter in self.parameters)

    def is_reached(self, leaves: set[int]) -> bool:
        """Returns whether a backward pass that reaches these parameters, given by id, reaches the network."""
        return not leaves.isdisjoint(map(id, self.parameters))

    def has(self, path: str) -> bool:
        """Returns whether a path is the network's name, or the path of one of its submodules or parameters."""
        return path == self.name or any(name == path or name.startswith(f"{path}.") for name in self.names)


def find_networks(optimizers: Iterable[torch.optim.Optimizer], module: LightningModule) -> dict[str, OptimizedNetwork]:
    """Returns the network that each optimizer steps, by name.

    Raises:
        RefusedInput: two optimizers step the same parameter, or an optimizer steps a parameter that is frozen or not in
            the module. The gradient of such a parameter would not be averaged over the ranks.
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
    """Raises `RefusedInput` if a parameter requires a gradient and no optimizer steps it."""
    stepped = {id(parameter) for network in networks.values() for parameter in network.parameters}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in stepped:
            raise RefusedInput(
                f"no optimizer steps {name}, which requires a gradient: freeze it with requires_grad_(False), or give"
                " it to an optimizer."
            )


def network_named(networks: Mapping[str, OptimizedNetwork], path: str) -> OptimizedNetwork:
    """Returns the network whose name is `path`, or that contains the submodule or parameter at `path`.

    Raises:
        RefusedInput: no network, or more than one, matches the path.
    """
    matches = [network for network in networks.values() if network.has(path)]
    if len(matches) != 1:
        number = "several networks" if matches else "no network"
        raise RefusedInput(
            f"manual_backward(loss, network={path!r}) names {number} of the module, which has {', '.join(networks)}."
        )
    return matches[0]


def trained_network(networks: Mapping[str, OptimizedNetwork], loss: Tensor) -> OptimizedNetwork:
    """Returns the only unfrozen network. If there are several, returns the only one that the loss depends on.

    Raises:
        RefusedInput: all networks are frozen, or the loss depends on no unfrozen network, or on several.
    """
    trained = [network for network in networks.values() if network.trains]
    if len(trained) > 1:
        leaves = leaves_of(loss)
        trained = [network for network in trained if network.is_reached(leaves)]
    if len(trained) != 1:
        raise RefusedInput(
            "a backward pass must train exactly one network, but the networks"
            f" {[network.name for network in trained]} require gradients of its loss: freeze the other networks"
            " (toggle_optimizer does), or name one network with manual_backward(loss, network=NAME)."
        )
    return trained[0]


def stepped_network(
    networks: Mapping[str, OptimizedNetwork], optimizer: torch.optim.Optimizer | LightningOptimizer
) -> OptimizedNetwork:
    """Returns the network that an optimizer steps. The optimizer can be wrapped in a `LightningOptimizer`.

    Raises:
        RefusedInput: `configure_optimizers` did not return the optimizer.
    """
    bare = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
    for network in networks.values():
        if network.optimizer is bare:
            return network
    raise RefusedInput("step() was called on an optimizer that configure_optimizers did not return: return it there.")


def penalized_networks(module: LightningModule) -> tuple[str, ...]:
    """Returns the names of the networks with gradient penalties, from the module's attribute `penalized_networks`."""
    return tuple(getattr(module, "penalized_networks", ()))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Returns the parameters of all parameter groups of an optimizer, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def names_of_parameters(module: nn.Module) -> dict[int, list[str]]:
    """Returns all names of each parameter, by the parameter's id. The names with the shortest paths come first."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {key: sorted(aliases, key=lambda name: name.count(".")) for key, aliases in names.items()}


def _refuse_parameter(parameter: nn.Parameter, names: list[str] | None, stepped: set[int]) -> None:
    if names is None:
        raise RefusedInput(
            f"an optimizer steps a parameter of shape {tuple(parameter.shape)} that is not in the module, so that its"
            " gradients would not be averaged over the ranks: assign the parameter, or the network that contains it, to"
            " an attribute of the module."
        )
    if id(parameter) in stepped:
        raise RefusedInput(
            f"two optimizers step {names[0]}: pass it to only one optimizer, with one parameter group for each setting."
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
    """Returns the largest submodules whose parameters are all in `owned`. The keys are the submodules' shortest paths.

    Submodules without parameters are not returned.

    Args:
        module: module to search.
        owned: ids of the owned parameters.
        containers: whether to return submodules without a `forward`, such as a `ModuleList`. If False, their children
            are returned instead.
    """
    largest: dict[str, nn.Module] = {}
    seen: set[int] = set()
    level = [("", module)]
    # Search breadth-first, smallest modules first, so that an EMA wrapper that contains the online model is not
    # mistaken for the model itself.
    while level:
        children = [(path + name, child) for path, parent in level for name, child in parent.named_children()]
        level, complete = [], set()
        for path, child in sorted(children, key=lambda item: len([*item[1].modules()])):
            parameters = {id(parameter) for parameter in child.parameters()}
            if id(child) in seen or not parameters & owned:
                continue
            inner = {id(descendant) for descendant in child.modules()}
            all_owned = parameters <= owned and not inner & seen
            if all_owned and (containers or type(child).forward is not nn.Module.forward):
                complete.add(path)
                seen |= inner
            else:
                level.append((f"{path}.", child))
        largest |= {path: child for path, child in children if path in complete}
    return largest


def make_contiguous(network: nn.Module) -> None:
    """Makes the parameters of a network contiguous, and keeps the channels-last layout of its feature maps.

    FSDP and DeepSpeed shard contiguous parameters only. A convolution computes in the channels-last layout if its input
    or its weight has this layout, so each convolution whose weight loses the layout converts its input from now on.
    Only the first convolutions copy: the maps after them already have the layout.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and any(map(_is_channels_last, layer.parameters())):
            layer.register_forward_pre_hook(_to_channels_last)
    network.to(memory_format=torch.contiguous_format)


def _is_channels_last(weight: Tensor) -> bool:
    return weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def _to_channels_last(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.contiguous(memory_format=torch.channels_last) if isinstance(value, Tensor) and value.dim() == 4 else value
        for value in inputs
    )


def leaves_of(loss: Tensor) -> set[int]:
    """Returns the ids of the parameters that the backward pass of a loss reaches."""
    leaves: set[int] = set()
    seen, remaining = set(), [loss.grad_fn]
    while remaining:
        node = remaining.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        remaining += [parent for parent, _ in node.next_functions]
    return leaves


def call_in_backward(network: nn.Module, function: Callable[[Tensor], None]) -> RemovableHandle:
    """Registers a hook that calls a function with the gradient of each network output, and returns its handle."""

    @torch.compiler.disable
    def after_forward(_: nn.Module, inputs: Any, outputs: Any) -> None:
        for output in tensors_in(outputs):
            if output.requires_grad:
                output.register_hook(function)

    return network.register_forward_hook(after_forward)


def refusing_penalties(sentence: str) -> Callable[[Tensor], None]:
    """Returns a function for `call_in_backward` that raises an error if the gradient will be differentiated again.

    Args:
        sentence: message of the `RefusedInput` error.
    """

    def refuse(_: Tensor) -> None:
        if torch.is_grad_enabled():  # during a backward pass, this is the case only with create_graph=True
            raise RefusedInput(sentence)

    return refuse


def tensors_in(outputs: Any) -> list[Tensor]:
    """Returns all tensors in a module's outputs, including attributes of objects such as a `Distribution`."""
    tensors: dict[int, Tensor] = {}
    seen: set[int] = set()
    remaining = [outputs]
    while remaining:
        for leaf in tree_leaves(remaining.pop()):
            if isinstance(leaf, Tensor):
                tensors[id(leaf)] = leaf
            elif id(leaf) not in seen and not isinstance(leaf, nn.Module | type):
                seen.add(id(leaf))
                remaining += vars(leaf).values() if hasattr(leaf, "__dict__") else ()
    return list(tensors.values())
