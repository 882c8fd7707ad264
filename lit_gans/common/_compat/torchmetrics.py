"""LPIPS of torchmetrics, whose public class downloads its backbone weights. Checked with torchmetrics 1.9.0."""

from __future__ import annotations

import re
from typing import Literal

from torch import nn
from torchmetrics.functional.image.lpips import _LPIPS

Backbone = Literal["vgg", "alex", "squeeze"]


def lpips(backbone: Backbone) -> tuple[nn.Module, dict[str, str]]:
    """Returns the LPIPS network with a randomly initialized backbone, and a mapping of tensor names for its weights.

    The mapping translates the names in torchvision's network to the names in the LPIPS network. The network maps two
    batches of images in [-1, 1] to distances of shape (n, 1, 1, 1). No issue found.
    """
    network = _LPIPS(net=backbone, pnet_rand=True)  # type: ignore[no-untyped-call]
    names = {re.sub(r"^slice(s\.)?\d+\.", "features.", name): f"net.{name}" for name in network.net.state_dict()}
    return network, names
