"""The names of the strategies: `Trainer(strategy="network_ddp")`."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from lightning.pytorch.strategies import Strategy, StrategyRegistry

_DDP = "lit_gans.strategies.ddp.NetworkDDP"
_FSDP = "lit_gans.strategies.fsdp.NetworkFSDP"
_DEEPSPEED = "lit_gans.strategies.deepspeed.strategy.NetworkDeepSpeed"

NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "network_ddp": (_DDP, {}),
    "network_fsdp": (_FSDP, {}),
    "network_fsdp_layer": (_FSDP, {"wrap": "layer"}),
    "network_fsdp_hybrid": (_FSDP, {"hybrid": True}),
    "network_deepspeed": (_DEEPSPEED, {}),
    **{f"network_deepspeed_stage_{stage}": (_DEEPSPEED, {"stage": stage}) for stage in (0, 1, 2, 3)},
    **{
        f"network_deepspeed_stage_{stage}_offload": (_DEEPSPEED, {"stage": stage, "offload_optimizer": True})
        for stage in (2, 3)
    },
}


def register() -> None:
    """Registers the names with Lightning; a strategy is imported only when it is chosen."""
    for name, (place, arguments) in NAMES.items():
        cls = place.rpartition(".")[2]
        StrategyRegistry.register(
            name, partial(_make, place), description=f"`{cls}` of lit_gans", override=True, **arguments
        )


def named(name: str, **arguments: Any) -> Strategy:
    """Returns a new strategy.

    Args:
        name: one of `NAMES`.
        **arguments: arguments that replace those of the name.
    """
    place, own = NAMES[name]
    return _make(place, **(own | arguments))


def _make(place: str, **arguments: Any) -> Strategy:
    module, _, cls = place.rpartition(".")
    strategy: Strategy = getattr(importlib.import_module(module), cls)(**arguments)
    return strategy
