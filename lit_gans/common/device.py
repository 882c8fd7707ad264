"""The device of a command."""

from __future__ import annotations

import torch

from lit_gans.common.errors import refusing


def chosen_device(name: str | None) -> torch.device:
    """Returns the named device; for None, CUDA if available, otherwise the CPU.

    Raises:
        RefusedInput: torch knows no such device, or this machine has none.
    """
    with refusing(f"device={name} cannot be used"):
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device).item()
    return device
