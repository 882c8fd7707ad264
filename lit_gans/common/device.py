"""The device of a command."""

from __future__ import annotations

import torch

from lit_gans.common.errors import RefusedInput, one_line


def chosen_device(name: str | None) -> torch.device:
    """Returns the named device; for None, CUDA if available, otherwise the CPU.

    Raises:
        RefusedInput: torch knows no such device, or this machine has none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise RefusedInput("device=cuda: torch finds no CUDA device here; use device=cpu.")
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = one_line(error).partition(". ")[0].rstrip(".")
        raise RefusedInput(f"device={name} cannot be used: {reason}; give cpu, cuda, cuda:1 or mps.") from error
    return device
