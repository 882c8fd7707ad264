"""Conversion of the Trainer's errors to single sentences that name the key."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lit_gans.common.errors import RefusedInput, one_line


@contextmanager
def trainer_refusals() -> Iterator[None]:
    """Converts errors of the Trainer, and settings that it would silently change, to `RefusedInput`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AMP with fp16 is not supported on CPU.*")
        try:
            yield
        except UserWarning as error:
            raise RefusedInput(
                "precision=fp16 needs a CUDA device: on a CPU Lightning would silently compute in bf16; use"
                " precision=bf16 or precision=fp32."
            ) from error
        except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:  # such as too few devices
            raise RefusedInput(_no_device(str(error)) or f"trainer: {one_line(error)}") from error


def _no_device(report: str) -> str:
    """Returns a sentence for Lightning's error of an accelerator that this machine lacks; nothing for another error."""
    found = re.search(r"`(\w+)Accelerator` can not run on your system|No supported (gpu) backend found", report)
    if found is None:
        return ""
    name = (found[1] or found[2]).lower()
    torch_lacks = name in ("cuda", "gpu") and not torch.backends.cuda.is_built()
    why = f"torch {torch.__version__} is installed without CUDA" if torch_lacks else "there is no such device here"
    return f"trainer.accelerator={name}: {why}; trainer.accelerator=auto uses what there is, otherwise the CPU."
