"""Half precision with a gradient scaler for each network, and a warning where scaled gradients are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.common._compat.lightning import run_hooks_before_step
from lit_gans.common._compat.torch import scale_of, version_of
from lit_gans.common.lightning import LightningModule, MixedPrecision, Strategy, rank_zero_warn
from lit_gans.strategies.module_networks import (
    OptimizedNetwork,
    find_networks,
    network_named,
    stepped_network,
    trained_network,
)


class ScaledGradients:
    """Notes the gradients of scaled losses after each backward, to warn if they change before they are unscaled.

    What clips scaled gradients clips to a wrong norm, silently. Changes in place, as by
    `torch.nn.utils.clip_grad_norm_`, are counted by torch itself, which does not wait for the device; a gradient
    scaler's own unscaling is not counted.
    """

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._said: set[str] = set()

    def note(self, parameters: Iterable[nn.Parameter]) -> None:
        """Notes the gradients that a backward has just computed."""
        self._versions |= {id(each): version_of(each.grad) for each in parameters if each.grad is not None}

    def check(self, network: str, parameters: Iterable[nn.Parameter]) -> None:
        """Warns, once for each network, if a gradient has changed since it was noted."""
        if network in self._said:
            return
        noted = [(each.grad, self._versions.get(id(each))) for each in parameters]
        if any(grad is not None and version is not None and version_of(grad) > version for grad, version in noted):
            self._said.add(network)
            rank_zero_warn(
                f"the gradients of {network} are changed after their backward, while they are still scaled for fp16:"
                ' what clips them there clips to a wrong norm. Use self.clip_gradients(optimizer, VALUE, "norm") with'
                " NetworkDDP, or with Trainer(plugins=NetworkScaling()) on one device, which unscale them first."
            )


class NetworkScaling(MixedPrecision):
    """Precision plugin for fp16 training of several networks: `Trainer(plugins=NetworkScaling())`.

    Lightning has one scaler and adapts its scale after every optimizer step. If two networks are stepped after both
    backward passes, the second is therefore unscaled by a wrong factor. Here each network has its own scaler. A
    backward names its network, `manual_backward(loss, network=NAME)`, or all others are frozen. Modules of lit_gans
    select this plugin automatically in fp16.

    An optimizer that steps without gradients does nothing, as in float32; Lightning's plugin fails there. A warning
    reports gradients that are changed while they are scaled, as by a clipping other than `self.clip_gradients`.

    Args:
        device: device type of autocast.
        make_scaler: returns a new scaler; `None` uses torch's defaults.
    """

    def __init__(self, device: str = "cuda", make_scaler: Callable[[], torch.amp.GradScaler] | None = None) -> None:
        self._make_scaler = make_scaler or (lambda: torch.amp.GradScaler(device))
        super().__init__("16-mixed", device, self._make_scaler())
        self._scalers: dict[str, torch.amp.GradScaler] = {}
        self._networks: dict[str, OptimizedNetwork] = {}
        self._unscaled: set[str] = set()  # networks whose gradients were unscaled to be clipped
        self._gradients = ScaledGradients()

    def connect(self, model: Any, optimizers: list[torch.optim.Optimizer], lr_schedulers: list[Any]) -> Any:
        self._networks = find_networks(optimizers, model)
        return super().connect(model, optimizers, lr_schedulers)

    def pre_backward(self, tensor: Tensor, module: LightningModule) -> Tensor:
        return super(MixedPrecision, self).pre_backward(tensor, module)  # scaled in `backward`, which knows the network

    def backward(
        self,
        tensor: Tensor,
        model: LightningModule,
        optimizer: Any,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> None:
        trained = trained_network(self._networks) if network is None else network_named(self._networks, network)
        super().backward(self._scaler(trained.name).scale(tensor), model, optimizer, *args, **kwargs)
        self._gradients.note(trained.parameters)

    def clip_gradients(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        """Clips the gradients of a network, which are unscaled before."""
        self._unscale(stepped_network(self._networks, optimizer))
        super().clip_gradients(optimizer, *args, **kwargs)

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        network = stepped_network(self._networks, optimizer)
        closure()  # which may run a backward
        self._unscale(network)
        run_hooks_before_step(self, model, optimizer)
        if network.name not in self._unscaled:  # without gradients, where Lightning's scaler fails
            return optimizer.step(**kwargs)
        self._unscaled.discard(network.name)
        scaler = self._scaler(network.name)
        output = scaler.step(optimizer, **kwargs)
        scaler.update()
        return output

    def _unscale(self, network: OptimizedNetwork) -> None:
        """Unscales the gradients of a network, if it has any, once before each step."""
        if network.name in self._unscaled or all(parameter.grad is None for parameter in network.parameters):
            return
        self._gradients.check(network.name, network.parameters)
        self._scaler(network.name).unscale_(network.optimizer)  # not Lightning's wrapper of it
        self._unscaled.add(network.name)

    def state_dict(self) -> dict[str, Any]:
        return {name: scaler.state_dict() for name, scaler in self._scalers.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, state in state_dict.items():
            self._scaler(name).load_state_dict(state)

    def scales(self) -> dict[str, Tensor]:
        """Returns the current scale of each network on its device."""
        found = {name: scale_of(scaler) for name, scaler in self._scalers.items()}
        return {name: scale for name, scale in found.items() if scale is not None}

    def _scaler(self, name: str) -> torch.amp.GradScaler:
        return self._scalers.setdefault(name, self._make_scaler())


def scale_each_network(strategy: Strategy) -> None:
    """Replaces Lightning's own plugin for fp16 by one that scales each network with a copy of the user's scaler."""
    plugin = strategy.precision_plugin
    if type(plugin) is MixedPrecision and plugin.scaler is not None:
        strategy.precision_plugin = NetworkScaling(plugin.device, partial(deepcopy, plugin.scaler))
