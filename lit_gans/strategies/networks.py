"""The networks of a module, as the strategies see them."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule
from torch import nn

from lit_gans.errors import RefusedInput


def networks_of(module: LightningModule) -> dict[str, nn.Module]:
    """Returns the children of a module that have parameters to train, by name.

    Raises:
        RefusedInput: a parameter to train lies outside the children or in two of them: no wrapper would reduce its
            gradient, or two would.
    """
    networks = {
        name: child
        for name, child in module.named_children()
        if any(parameter.requires_grad for parameter in child.parameters())
    }
    home: dict[int, str] = {}
    for name, network in networks.items():
        for parameter in network.parameters():
            other = home.setdefault(id(parameter), name)
            if other != name:
                raise RefusedInput(f"the networks {other} and {name} share a parameter: each must have its own.")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in home:
            raise RefusedInput(f"the parameter {name} lies outside every network: move it into a child module.")
    return networks


def network_of(optimizer: torch.optim.Optimizer, module: LightningModule) -> str:
    """Returns the name of the network that an optimizer steps.

    Raises:
        RefusedInput: the optimizer has parameters of no child, or of several.
    """
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    found = [
        name for name, child in module.named_children() if stepped & {id(parameter) for parameter in child.parameters()}
    ]
    if len(found) != 1:
        raise RefusedInput(f"an optimizer steps the networks {found}: each network needs an optimizer of its own.")
    return found[0]
