"""Half precision with a gradient scaler for each network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor

from lit_gans.strategies import contracts
from lit_gans.strategies.module_networks import networks_of, optimized_networks


class NetworkScaling(MixedPrecision):
    """Precision plugin for fp16 training of several networks: `Trainer(plugins=NetworkScaling())`.

    Lightning has one scaler and adapts its scale after every optimizer step. If two networks are stepped after both
    backward passes, the second is therefore unscaled by a wrong factor. Here each network has its own scaler. Modules
    of lit_gans select this plugin automatically under precision=fp16.

    Args:
        device: device type of autocast.
        make_scaler: returns a new scaler; `None` uses torch's defaults.
    """

    def __init__(self, device: str = "cuda", make_scaler: Callable[[], torch.amp.GradScaler] | None = None) -> None:
        self._make_scaler = make_scaler or (lambda: torch.amp.GradScaler(device))
        super().__init__("16-mixed", device, self._make_scaler())
        self._scalers: dict[str, torch.amp.GradScaler] = {}
        self._stepped: dict[int, str] = {}

    def connect(self, model: Any, optimizers: list[torch.optim.Optimizer], lr_schedulers: list[Any]) -> Any:
        self._stepped = optimized_networks(optimizers, model)
        return super().connect(model, optimizers, lr_schedulers)

    def pre_backward(self, tensor: Tensor, module: LightningModule) -> Tensor:
        name = contracts.backpropagated_network(module) or _trained_network(module)
        self.scaler = self._scaler(name)
        return super().pre_backward(tensor, module)

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        self.scaler = self._scaler(self._stepped[id(optimizer)])
        return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        return {name: scaler.state_dict() for name, scaler in self._scalers.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, state in state_dict.items():
            self._scaler(name).load_state_dict(state)

    def _scaler(self, name: str) -> torch.amp.GradScaler:
        return self._scalers.setdefault(name, self._make_scaler())


def _trained_network(module: LightningModule) -> str:
    names = list(networks_of(module))
    if len(names) != 1:
        raise RuntimeError(
            f"a backward must train exactly one network, but {names} have parameters that require gradients: freeze the"
            " others."
        )
    return names[0]
