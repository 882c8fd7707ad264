"""Mixed precision training in fp16 with one gradient scaler per network. Warns if scaled gradients are modified."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.lightning import run_hooks_before_step
from lit_gans.common._compat.torch import scale_of, version_of
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import LightningModule, MixedPrecision, Strategy, rank_zero_warn
from lit_gans.strategies.module_networks import (
    OptimizedNetwork,
    find_networks,
    network_named,
    stepped_network,
    trained_network,
)


class ScaledGradients:
    """Warns if gradients of a scaled loss are changed before they are unscaled.

    Clipping scaled gradients silently clips them to a wrong norm. Each in-place change of a tensor, for
    example by `torch.nn.utils.clip_grad_norm_`, increments the version counter that torch keeps for the tensor.
    Comparing versions does not synchronize with the device. A gradient scaler's own unscaling does not change the
    version.
    """

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._warned: set[str] = set()  # networks for which a warning has been issued

    def note(self, parameters: Iterable[nn.Parameter]) -> None:
        """Records the versions of the gradients that a backward pass has just computed."""
        self._versions |= {id(p): version_of(p.grad) for p in parameters if p.grad is not None}

    def check(self, network: str, parameters: Iterable[nn.Parameter]) -> None:
        """Warns once per network if a gradient has changed since its version was recorded."""
        if network in self._warned:
            return
        recorded = [(parameter.grad, self._versions.get(id(parameter))) for parameter in parameters]
        if any(grad is not None and version is not None and version_of(grad) > version for grad, version in recorded):
            self._warned.add(network)
            rank_zero_warn(
                f"the gradients of {network} were changed after their backward pass, while they were still scaled for"
                " fp16: clipping them at this point clips to a wrong norm. Use"
                ' self.clip_gradients(optimizer, VALUE, "norm") with NetworkDDP, or with'
                " Trainer(plugins=NetworkScaling()) on one device, which unscale the gradients first."
            )


class NetworkScaling(MixedPrecision):
    """Precision plugin for fp16 training of several networks: `Trainer(plugins=NetworkScaling())`.

    Lightning uses one gradient scaler and adapts its scale after every optimizer step. If two networks are stepped
    after both backward passes, the gradients of the second network are therefore unscaled by a wrong factor. This
    plugin uses a separate scaler for each network. The loss of a backward pass must depend on one unfrozen network
    alone, or the pass must name its network, as in `manual_backward(loss, network=NAME)`. `NetworkDDP` and modules of
    lit_gans select this plugin in fp16.

    If an optimizer steps without gradients, nothing happens, as in float32. Lightning's plugin raises an error in this
    case. A warning is issued if gradients are changed while they are scaled, for example if they are clipped by any
    other means than `self.clip_gradients`.

    With fused optimizers, the device decides whether a step is skipped. With all other optimizers, torch's scaler reads
    in each step on the host whether gradients overflowed.

    Args:
        device: device type of autocast.
        make_scaler: function that returns a new scaler; `None` uses torch's default scaler.

    Raises:
        RefusedInput: gradients would be added or stepped with a wrong scale.
    """

    def __init__(self, device: str = "cuda", make_scaler: Callable[[], torch.amp.GradScaler] | None = None) -> None:
        self._make_scaler = make_scaler or (lambda: torch.amp.GradScaler(device))
        super().__init__("16-mixed", device, self._make_scaler())
        self._scalers: dict[str, torch.amp.GradScaler] = {}
        self._networks: dict[str, OptimizedNetwork] = {}
        # networks whose gradients have been computed since their last step, and whether they are unscaled
        self._are_unscaled: dict[str, bool] = {}
        self._hooks: list[RemovableHandle] = []
        self._gradients = ScaledGradients()

    def connect(self, model: Any, optimizers: list[torch.optim.Optimizer], lr_schedulers: list[Any]) -> Any:
        self._networks, self._are_unscaled = find_networks(optimizers, model), {}
        for network in self._networks.values():
            self._hooks.append(network.optimizer.register_step_pre_hook(partial(self._refuse_scaled, network)))
        return super().connect(model, optimizers, lr_schedulers)

    def teardown(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        super().teardown()

    def pre_backward(self, tensor: Tensor, module: LightningModule) -> Tensor:
        # skips MixedPrecision.pre_backward: the loss is scaled in `backward`, where the network is known
        return super(MixedPrecision, self).pre_backward(tensor, module)

    def backward(
        self,
        tensor: Tensor,
        model: LightningModule,
        optimizer: Any,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> None:
        networks = self._networks
        trained = trained_network(networks, tensor) if network is None else network_named(networks, network)
        if self._are_unscaled.get(trained.name):  # the step for which they were unscaled has not come
            if any(p.grad is not None and bool(p.grad.any()) for p in trained.parameters):
                raise RefusedInput(
                    f"self.clip_gradients has unscaled the gradients of {trained.name}, and this backward pass would"
                    " add scaled gradients to them: clip after the last backward pass, or call zero_grad() first."
                )
            self._scaler(trained.name).update()
        self._are_unscaled[trained.name] = False
        super().backward(self._scaler(trained.name).scale(tensor), model, optimizer, *args, **kwargs)
        self._gradients.note(trained.parameters)

    def clip_gradients(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        """Unscales and then clips the gradients of the network that the optimizer steps."""
        self._unscale(stepped_network(self._networks, optimizer))
        # skips MixedPrecision.clip_gradients, which raises an error for fused optimizers: the gradients are unscaled
        super(MixedPrecision, self).clip_gradients(optimizer, *args, **kwargs)

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        network = stepped_network(self._networks, optimizer)
        closure()  # may run a backward pass, so unscale only afterwards
        self._unscale(network)
        run_hooks_before_step(self, model, optimizer)
        if not self._are_unscaled.pop(network.name, False):  # a scaler's step would raise an error without gradients
            return optimizer.step(**kwargs)
        scaler = self._scaler(network.name)
        output = scaler.step(optimizer, **kwargs)
        scaler.update()
        return output

    def _unscale(self, network: OptimizedNetwork) -> None:
        """Unscales the gradients of a network once before each step. Does nothing if no backward computed gradients."""
        if self._are_unscaled.get(network.name) is not False or not _has_gradients(network):
            return
        self._gradients.check(network.name, network.parameters)
        self._scaler(network.name).unscale_(network.optimizer)  # the torch optimizer, not Lightning's wrapper
        self._are_unscaled[network.name] = True

    def _refuse_scaled(self, network: OptimizedNetwork, *_: Any) -> None:
        if self._are_unscaled.get(network.name) is False and _has_gradients(network):
            raise RefusedInput(
                f"the optimizer of {network.name} would step with gradients that are scaled for fp16: step the"
                " optimizer that self.optimizers() returns, which unscales them first."
            )

    def state_dict(self) -> dict[str, Any]:
        return {name: scaler.state_dict() for name, scaler in self._scalers.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, state in state_dict.items():
            self._scaler(name).load_state_dict(state)

    def scales(self) -> dict[str, Tensor]:
        """Returns the current scale of each network, as a tensor on the scaler's device."""
        scales = {name: scale_of(scaler) for name, scaler in self._scalers.items()}
        return {name: scale for name, scale in scales.items() if scale is not None}

    def _scaler(self, name: str) -> torch.amp.GradScaler:
        return self._scalers.setdefault(name, self._make_scaler())


def _has_gradients(network: OptimizedNetwork) -> bool:
    return any(parameter.grad is not None for parameter in network.parameters)


def scale_each_network(strategy: Strategy) -> None:
    """Replaces Lightning's fp16 plugin by `NetworkScaling` with a copy of the user's scaler for each network."""
    plugin = strategy.precision_plugin
    if type(plugin) is MixedPrecision and plugin.scaler is not None:
        strategy.precision_plugin = NetworkScaling(plugin.device, partial(deepcopy, plugin.scaler))
