"""Gradients that are changed while they are scaled: what clips them there clips to a wrong norm, silently."""

from __future__ import annotations

from collections.abc import Iterable

from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from lit_gans.common._compat.torch import version_of


class ScaledGradients:
    """Notes the gradients of scaled losses after each backward, to warn if they change before they are unscaled.

    Changes in place, as by `torch.nn.utils.clip_grad_norm_`, are counted by torch itself, so that no device is waited
    for; a gradient scaler's own unscaling is not counted.
    """

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._said: set[str] = set()

    def note(self, parameters: Iterable[nn.Parameter]) -> None:
        """Notes the gradients that a backward has just computed."""
        self._versions |= {id(each): version_of(each.grad) for each in parameters if each.grad is not None}

    def check(self, network: str, parameters: Iterable[nn.Parameter]) -> None:
        """Warns, once for each network, if a gradient has changed since it was noted."""
        if network in self._said:
            return
        noted = [(each.grad, self._versions.get(id(each))) for each in parameters]
        if any(grad is not None and version is not None and version_of(grad) > version for grad, version in noted):
            self._said.add(network)
            rank_zero_warn(
                f"the gradients of {network} are changed after their backward, while they are still scaled for fp16:"
                ' what clips them there clips to a wrong norm. Use self.clip_gradients(optimizer, VALUE, "norm") with'
                " NetworkDDP, or with Trainer(plugins=NetworkScaling()) on one device, which unscale them first."
            )
