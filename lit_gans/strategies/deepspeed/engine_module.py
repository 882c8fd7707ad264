"""The module of an engine: a network's only submodule, or a container of all its submodules and single parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.deepspeed import backward_into, prepare_backward, stays_gathered
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.module_networks import Network, refuse_second_differentiation


class Pieces(nn.Module):
    """A container of a network's submodules and single parameters, which are computed with one by one."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        for index, root in enumerate(network.roots.values()):
            self.add_module(str(index), root)
        for index, parameter in enumerate(network.loose.values(), start=len(network.roots)):
            self.register_parameter(str(index), parameter)

    def forward(self) -> None:
        """Computes nothing."""


def engine_module(network: Network) -> nn.Module:
    """Returns the module of a network's engine."""
    if len(network.roots) == 1 and not network.loose:
        return next(iter(network.roots.values()))
    return Pieces(network)


def refuse_scalars(network: Network, module: nn.Module) -> None:
    """Raises `RefusedInput` for a parameter without a dimension, which DeepSpeed cannot broadcast."""
    scalars = {id(parameter) for parameter in network.parameters if parameter.dim() == 0}
    for name in (name for name, parameter in module.named_parameters() if id(parameter) in scalars):
        raise RefusedInput(
            f"DeepSpeed trains no parameter without a dimension, such as {name}: give it the shape (1,), or use"
            " strategy=ddp or fsdp."
        )


def prepare_stage_3(network: Network, module: nn.Module, note: Callable[[str], None]) -> tuple[RemovableHandle, ...]:
    """Lets stage 3 gather the pieces of a network; returns the handles of its hooks.

    These refuse penalties, and note each forward that gathers.

    Raises:
        RefusedInput: stage 3 frees a parameter that no forward of its layer gathers.
    """
    hooks: tuple[RemovableHandle, ...] = ()
    if isinstance(module, Pieces):
        module()  # gathers its own parameters
    for path, root in network.roots.items():
        sentence = (
            f"a gradient through {path} is differentiated again, but ZeRO stage 3 frees its weights in between: use"
            " trainer.strategy.stage=2, or strategy=fsdp."
        )
        hooks += (refuse_second_differentiation(root, sentence),)
        if not all(map(stays_gathered, root.parameters())):
            before = partial(_before_gather, note, f"the forward of {path}")
            hooks += (root.register_forward_pre_hook(before, prepend=True),)
    for name, parameter in network.loose.items():
        if not stays_gathered(parameter):
            raise RefusedInput(
                f"ZeRO stage 3 gathers a layer in its forward, but {name} belongs to a module that computes without"
                " one, and is larger than stage3_param_persistence_threshold: move it into a module with a forward, or"
                " use stage 2."
            )
    return hooks


@torch.compiler.disable
def _before_gather(note: Callable[[str], None], what: str, *_: Any) -> None:
    note(what)


def run_backward(engine: Any, loss: Tensor, inputs: list[nn.Parameter] | None, stage: int, retain_graph: bool) -> None:
    """Runs a backward that gives gradients to some parameters only; `None` for all."""
    if stage:
        prepare_backward(engine, loss)
    if inputs is None:
        engine.backward(loss, retain_graph=retain_graph, scale_wrt_gas=False)
    else:
        backward_into(engine, loss, inputs, stage, retain_graph)


def prefixes(network: Network) -> dict[str, str]:
    """Returns for the beginning of each name in the engine's module the beginning of its name in the user's module."""
    if len(network.roots) == 1 and not network.loose:
        return {"": f"{next(iter(network.roots))}."}
    roots = {f"{index}.": f"{path}." for index, path in enumerate(network.roots)}
    return roots | {str(index): name for index, name in enumerate(network.loose, start=len(network.roots))}
