"""Runs networks without compilation if their graph must be differentiated twice."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from lit_gans.common._compat.torch import is_compiled


def uncompiled(*networks: nn.Module) -> AbstractContextManager[object]:
    """Context manager in which networks that were compiled in place run uncompiled, with the same parameters.

    This is needed for double backward passes, because torch raises an error if the graph of a compiled network is
    differentiated twice.
    """
    # only if a network is compiled, because the first `set_stance` imports the compiler, which takes seconds
    if any(is_compiled(network) for network in networks):
        return torch.compiler.set_stance("force_eager")
    return nullcontext()
