"""Names the method that computes with a network's shards: FSDP gathers a network in its `forward` only."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.strategies import Strategy
from torch import nn

from lit_gans.common.errors import RefusedInput

_CALLS = ("_wrapped_call_impl", "_call_impl", "forward")  # what calling a module runs


class ForwardsOnly(Strategy):
    """Refuses steps that compute with a network outside its `forward`, to be mixed in before Lightning's class.

    Torch's own error speaks of mixed tensors. A hook on each layer could tell earlier, but would break the graphs of
    compiled networks.
    """

    _roots: Mapping[str, nn.Module]

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with _explained(self._roots):
            return super().training_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        with _explained(self._roots):
            return super().validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        with _explained(self._roots):
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        with _explained(self._roots):
            return super().predict_step(*args, **kwargs)


@contextmanager
def _explained(roots: Mapping[str, nn.Module]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        root, path, method = _first_call(error, roots) or ("", "", "")
        if root and "DTensor" in str(error) and (path, method) != (root, "forward"):
            called = f"{path}.{method} computes outside"
        elif root and "lazily initialized" in str(error):  # under wrap=layer
            called = f"a layer of {root} has computed outside"
        else:
            raise
        raise RefusedInput(
            f"{called} {root}.forward, which gathers the weights under FSDP: let {root}.forward call it, and call"
            f" {root}(...), or use NetworkDDP."
        ) from error


def _first_call(error: BaseException, roots: Mapping[str, nn.Module]) -> tuple[str, str, str] | None:
    """Returns the network, and the module of it and the method with which an error began to compute."""
    inside = {
        id(module): (root, f"{root}.{path}".rstrip("."))
        for root, network in roots.items()
        for path, module in network.named_modules()
    }
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = id(frame.f_locals.get("self"))
        if owner in inside:
            return *inside[owner], "forward" if frame.f_code.co_name in _CALLS else frame.f_code.co_name
    return None
