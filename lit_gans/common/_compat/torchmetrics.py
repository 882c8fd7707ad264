"""torchmetrics' LPIPS, whose public class downloads the weights of its backbone. Checked with torchmetrics 1.9.0."""

from __future__ import annotations

import re
from typing import Literal

from torch import nn
from torchmetrics.functional.image.lpips import _LPIPS

Backbone = Literal["vgg", "alex", "squeeze"]


def lpips(backbone: Backbone) -> tuple[nn.Module, dict[str, str]]:
    """Returns LPIPS with a random backbone, and the names of the backbone's tensors by those of torchvision's network.

    It maps two batches of images in [-1, 1] to distances (n, 1, 1, 1). No issue found.
    """
    network = _LPIPS(net=backbone, pnet_rand=True)  # type: ignore[no-untyped-call]
    names = {re.sub(r"^slice(s\.)?\d+\.", "features.", name): f"net.{name}" for name in network.net.state_dict()}
    return network, names
