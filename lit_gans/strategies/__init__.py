"""Strategies that wrap each network of a LightningModule separately.

They are independent of the modules of lit_gans and support any module with several networks and manual optimization.
Importing this package registers their names with Lightning: `Trainer(strategy="network_ddp")`.
"""

from typing import Any

from lightning.pytorch.strategies import StrategyRegistry

from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

NAMES: dict[str, tuple[type[NetworkStrategy], dict[str, Any]]] = {
    "network_ddp": (NetworkDDP, {}),
    "network_fsdp": (NetworkFSDP, {}),
    "network_fsdp_layer": (NetworkFSDP, {"wrap": "layer"}),
    "network_fsdp_hybrid": (NetworkFSDP, {"hybrid": True}),
    "network_deepspeed": (NetworkDeepSpeed, {}),
    **{f"network_deepspeed_stage_{stage}": (NetworkDeepSpeed, {"stage": stage}) for stage in (0, 1, 2, 3)},
    **{
        f"network_deepspeed_stage_{stage}_offload": (NetworkDeepSpeed, {"stage": stage, "offload_optimizer": True})
        for stage in (2, 3)
    },
}
for _name, (_class, _arguments) in NAMES.items():
    StrategyRegistry.register(_name, _class, f"`{_class.__name__}` of lit_gans", override=True, **_arguments)
