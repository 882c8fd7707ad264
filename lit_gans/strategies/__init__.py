"""Strategies that wrap each network of a LightningModule separately.

The strategies support any module with several networks and manual optimization. They need only torch and Lightning, and
do not depend on the LightningModules of lit_gans. Importing this package registers the strategies by name, for example
for `Trainer(strategy="network_ddp")`. The names are registered with `lightning.pytorch` or `pytorch_lightning`,
whichever has been imported. If neither has been imported, the names are registered with both.
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

NAMES: dict[str, tuple[str, dict[str, Any]]] = {  # maps each name to a class and its arguments
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


def __getattr__(name: str) -> Any:  # imports a class on first use, when the Trainer's Lightning package is known
    if name not in _FILES:
        raise AttributeError(f"module 'lit_gans.strategies' has no attribute '{name}'")
    return getattr(importlib.import_module(f"lit_gans.strategies.{_FILES[name]}"), name)


def _create_strategy(package: str, name: str, **arguments: Any) -> Any:
    """Creates a strategy for a Trainer of the given Lightning package."""
    lightning_package(package)
    return __getattr__(name)(**arguments)


def _register() -> None:
    # Importing either package configures its logger. In reverse order, the first package in use is imported last and
    # its configuration takes effect.
    for package in reversed(packages_in_use()):
        try:
            registry = importlib.import_module(f"{package}.strategies").StrategyRegistry
        except Exception:  # one of two installed Lightning packages might be broken
            logging.getLogger(__name__).debug("%s: the strategies cannot be registered", package, exc_info=True)
            continue
        for name, (class_name, arguments) in NAMES.items():
            create = partial(_create_strategy, package, class_name)
            registry.register(name, create, f"`{class_name}` of lit_gans", override=True, **arguments)


_register()
