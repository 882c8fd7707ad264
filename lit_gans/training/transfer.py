"""Fine-tuning: weights of one training in the networks of another, partly where sizes differ, and frozen layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput


@dataclass
class Transferred:
    """What a network took from another.

    Attributes:
        loaded: names of the tensors that were copied.
        adapted: names of those whose color channels were averaged or repeated.
        left: names of those that keep their own values.
        share: share of the network's numbers that were copied or adapted.
    """

    loaded: list[str] = field(default_factory=list)
    adapted: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    share: float = 0.0

    def __str__(self) -> str:
        text = f"{self.share:.0%} of the weights"
        if self.adapted:
            text += f"; other color channels in {', '.join(self.adapted)}"
        if self.left:
            more = f" and {len(self.left) - 3} more" if len(self.left) > 3 else ""
            text += f"; new: {', '.join(self.left[:3])}{more}"
        return text


@torch.no_grad()
def transfer(network: nn.Module, state: Mapping[str, Tensor]) -> Transferred:
    """Copies a state dict into a network where names and shapes are the same, or only the color channels differ.

    Where gray images follow color ones, a convolution of the images sums its weights over the channels, and one that
    makes images averages them; where color follows gray, weights are divided or repeated. Gray images are thus seen and
    made as before.

    Args:
        network: the network that takes the weights.
        state: state dict of another network.
    """
    found, taken, total = Transferred(), 0, 0
    for name, own in network.state_dict().items():
        total += own.numel()
        other = state.get(name)
        same = other is not None and other.shape == own.shape
        if other is not None and not same:
            other = _other_colors(other, own.shape, _layer_of(network, name))
        if other is None:
            found.left.append(name)
            continue
        (found.loaded if same else found.adapted).append(name)
        own.copy_(other)
        taken += own.numel()
    found.share = taken / total if total else 1.0
    return found


def freeze_finest(discriminator: nn.Module, num: int) -> None:
    """Freezes a discriminator up to its `num`-th convolution, counted from the images on (Mo et al. 2020, FreezeD).

    Layers are counted in the order in which the constructor defines them; norms between frozen convolutions are frozen
    too.

    Raises:
        RefusedInput: the network has no more convolutions than that.
    """
    convolutions = [layer for layer in discriminator.modules() if isinstance(layer, nn.Conv2d)]
    if num >= len(convolutions):
        raise RefusedInput(
            f"freeze_discriminator={num} must be less than the number of convolutions of the discriminator,"
            f" {len(convolutions)}: nothing would learn."
        )
    first_free = {id(parameter) for parameter in convolutions[num].parameters()}
    for parameter in discriminator.parameters():
        if id(parameter) in first_free:
            break
        parameter.requires_grad_(False)


def _layer_of(network: nn.Module, name: str) -> nn.Module:
    """Returns the layer that has a tensor, also where it is parametrized, as by spectral norm."""
    path = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    return network.get_submodule(path)


def _other_colors(weight: Tensor, shape: torch.Size, layer: nn.Module) -> Tensor | None:
    """Returns a tensor with gray instead of color channels, or the reverse; None if anything else differs."""
    sizes = enumerate(zip(weight.shape, shape, strict=False))
    different = [(axis, theirs, ours) for axis, (theirs, ours) in sizes if theirs != ours]
    if weight.dim() != len(shape) or len(different) != 1 or {*different[0][1:]} != {1, 3}:
        return None
    axis, _, ours = different[0]
    is_input = weight.dim() == 4 and axis == (0 if isinstance(layer, nn.ConvTranspose2d) else 1)
    if ours == 1:
        return weight.sum(axis, keepdim=True) if is_input else weight.mean(axis, keepdim=True)
    repeated = weight.repeat_interleave(3, axis)
    return repeated / 3 if is_input else repeated
