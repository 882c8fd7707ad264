"""Selects the device that a command uses."""

from __future__ import annotations

import torch

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
