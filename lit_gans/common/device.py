"""Selects the device that a command uses, and copies numbers from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lit_gans.common.errors import refusing


def chosen_device(name: str | None) -> torch.device:
    """Returns the device with the given name. None selects CUDA if it is available, otherwise the CPU.

    Raises:
        RefusedInput: torch does not know the device, or this machine does not have it.
    """
    with refusing(f"device={name} cannot be used"):
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device).item()
    return device


def on_cpu(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Moves scalar tensors to the CPU in one copy, because the host would wait for each copy of its own.

    Args:
        scalars: tensors with one element, or numbers, which are returned as they are. Tensors on the same device get a
            common dtype, which represents all of their values.
    """
    on_device = {name: value for name, value in scalars.items() if isinstance(value, Tensor) and not value.is_cpu}
    if not on_device:
        return dict(scalars)
    copies = torch.stack([value.detach().reshape(()) for value in on_device.values()]).cpu()
    return {**scalars, **dict(zip(on_device, copies, strict=True))}
