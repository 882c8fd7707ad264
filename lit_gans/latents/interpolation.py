"""Interpolation between latents."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def slerp(start: Float[Tensor, "n z"], end: Float[Tensor, "n z"], steps: int) -> Float[Tensor, "n steps z"]:
    """Interpolates spherically between pairs of latents (White 2016). The result includes both ends."""
    cosine = functional.cosine_similarity(start, end, dim=1)
    angle = cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()[:, None, None]
    t = torch.linspace(0, 1, steps, device=start.device)[None, :, None]
    return (((1 - t) * angle).sin() * start[:, None] + (t * angle).sin() * end[:, None]) / angle.sin()
