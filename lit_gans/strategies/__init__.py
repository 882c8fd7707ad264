"""Strategies that wrap each network of a LightningModule separately.

They are independent of the modules of lit_gans, need torch and Lightning only, and support any module with several
networks and manual optimization. Importing this package registers their names, with `lightning.pytorch` or
`pytorch_lightning`, whichever is imported: `Trainer(strategy="network_ddp")`. If neither is yet, both learn the names.
"""

import importlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from lit_gans.common.lightning_package import lightning_package, packages_in_use

if TYPE_CHECKING:
    from lit_gans.strategies.ddp import NetworkDDP
    from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
    from lit_gans.strategies.fsdp import NetworkFSDP

__all__ = ["NAMES", "NetworkDDP", "NetworkDeepSpeed", "NetworkFSDP"]

_FILES = {"NetworkDDP": "ddp", "NetworkFSDP": "fsdp", "NetworkDeepSpeed": "deepspeed.strategy"}

NAMES: dict[str, tuple[str, dict[str, Any]]] = {  # the class of each name, and its arguments
    "network_ddp": ("NetworkDDP", {}),
    "network_fsdp": ("NetworkFSDP", {}),
    "network_fsdp_layer": ("NetworkFSDP", {"wrap": "layer"}),
    "network_fsdp_hybrid": ("NetworkFSDP", {"hybrid": True}),
    "network_deepspeed": ("NetworkDeepSpeed", {}),
    **{f"network_deepspeed_stage_{stage}": ("NetworkDeepSpeed", {"stage": stage}) for stage in (0, 1, 2, 3)},
    **{
        f"network_deepspeed_stage_{stage}_offload": ("NetworkDeepSpeed", {"stage": stage, "offload_optimizer": True})
        for stage in (2, 3)
    },
}


def __getattr__(name: str) -> Any:  # the classes are made when they are needed, for the package of the Trainer
    if name not in _FILES:
        raise AttributeError(f"module 'lit_gans.strategies' has no attribute '{name}'")
    return getattr(importlib.import_module(f"lit_gans.strategies.{_FILES[name]}"), name)


def _make(package: str, name: str, **arguments: Any) -> Any:
    """Makes a strategy for a Trainer of a package."""
    lightning_package(package)
    return __getattr__(name)(**arguments)


def _register() -> None:
    for package in reversed(packages_in_use()):  # both set a logger: the last wins
        try:
            registry = importlib.import_module(f"{package}.strategies").StrategyRegistry
        except Exception:  # an installed package that cannot be imported, beside one that can
            logging.getLogger(__name__).debug("%s has no names of strategies", package, exc_info=True)
            continue
        for name, (class_name, arguments) in NAMES.items():
            make = partial(_make, package, class_name)
            registry.register(name, make, f"`{class_name}` of lit_gans", override=True, **arguments)


_register()
