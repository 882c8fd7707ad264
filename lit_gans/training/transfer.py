"""Fine-tuning: copies pretrained weights into new networks, even if sizes partly differ, and freezes layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.names import first_three


@dataclass
class Transferred:
    """Lists the tensors that a network has received from another network.

    Attributes:
        loaded: names of the tensors that were copied.
        adapted: names of the tensors that were converted to a different number of color channels.
        left: names of the tensors that keep their initial values.
        share: fraction of the network's values that were copied or adapted.
    """

    loaded: list[str] = field(default_factory=list)
    adapted: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    share: float = 0.0

    def __str__(self) -> str:
        text = f"{self.share:.0%} of the weights"
        if self.adapted:
            text += f"; adapted to other color channels: {', '.join(self.adapted)}"
        if self.left:
            text += f"; new: {first_three(self.left)}"
        return text


@torch.no_grad()
def transfer(network: nn.Module, state: Mapping[str, Tensor]) -> Transferred:
    """Copies tensors of a state dict into a network if names and shapes match, or if only the color channels differ.

    From color to gray, weights are summed over the channels in layers whose input is an image. Weights are averaged in
    layers whose output is an image. From gray to color, weights are repeated for each channel. In layers whose input is
    an image, they are also divided by 3. Gray images give the same outputs as before.

    Args:
        network: network that receives the weights.
        state: state dict of another network.
    """
    report, transferred, total = Transferred(), 0, 0
    for name, tensor in network.state_dict().items():
        total += tensor.numel()
        source = state.get(name)
        same = source is not None and source.shape == tensor.shape
        if source is not None and not same:
            source = _with_other_colors(source, tensor.shape, _layer_of(network, name))
        if source is None:
            report.left.append(name)
            continue
        (report.loaded if same else report.adapted).append(name)
        tensor.copy_(source)
        transferred += tensor.numel()
    report.share = transferred / total if total else 1.0
    return report


def freeze_finest(discriminator: nn.Module, num: int) -> None:
    """Freezes the first `num` convolutions of a discriminator, counted from its input (Mo et al. 2020, FreezeD).

    Convolutions are counted in the order in which the constructor defines them. All layers before the first trainable
    convolution are frozen, including normalizations.

    Raises:
        RefusedInput: if the network does not have more than `num` convolutions.
    """
    convolutions = [layer for layer in discriminator.modules() if isinstance(layer, nn.Conv2d)]
    if num >= len(convolutions):
        raise RefusedInput(
            f"freeze_discriminator={num} must be less than the number of convolutions of the discriminator,"
            f" {len(convolutions)}: otherwise it would not learn anything."
        )
    first_free = {id(parameter) for parameter in convolutions[num].parameters()}
    for parameter in discriminator.parameters():
        if id(parameter) in first_free:
            break
        parameter.requires_grad_(False)


def _layer_of(network: nn.Module, name: str) -> nn.Module:
    """Returns the layer of a tensor, even if the tensor is parametrized, for example by spectral norm."""
    path = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    return network.get_submodule(path)


def _with_other_colors(weight: Tensor, shape: torch.Size, layer: nn.Module) -> Tensor | None:
    """Converts a tensor from color to gray channels or the reverse. Returns None for other shapes."""
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
