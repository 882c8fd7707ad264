"""Construction of a generative module: its arguments are recorded and its networks built once all constructors ran."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn

from lit_gans.checkpoints.format import constructor_arguments, to_plain
from lit_gans.common.noise import forked, mix


class ConstructedLast(ABCMeta):
    """Metaclass of `ConstructedModule`: calls `_after_init` once the constructors of all subclasses have run.

    No constructor can do that itself: a subclass sets what `configure_networks` reads after `super().__init__()`. So
    a GAN's constructor stays ordinary Python, and a constructed module is an ordinary `nn.Module` with its networks in
    place: `parameters()`, `to()`, `state_dict()` and `load_state_dict()` need no special care.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Constructs a module."""
        module = super().__call__(*args, **kwargs)
        module._after_init(constructor_arguments(cls, args, kwargs))
        return module

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the constructor; Python would show that of `__call__`."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]  # of a subclass is what is wanted
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class ConstructedModule(LightningModule, metaclass=ConstructedLast):
    """Networks under their own names, with weights from the module's own seed; arguments as plain hyperparameters.

    Args:
        seed: of the weights, and of every other random number of the training.
        channels_last: memory layout of the networks.
        compile: compiles the networks in place.
    """

    generator: nn.Module

    def __init__(self, seed: int, channels_last: bool, compile: bool) -> None:
        super().__init__()
        self.seed = seed
        self.channels_last = channels_last
        self.compile_networks = compile
        self._received: dict[str, Any] = {}  # the arguments that reached the base class that has the settings

    @property
    def network_names(self) -> tuple[str, ...]:
        """Names of the networks, the generator's first."""
        return ("generator",)

    def configure_networks(self) -> dict[str, nn.Module]:
        """Returns new networks by name: `generator` and, of a GAN, those of `discriminator_names`."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Leaves the networks as the constructor built them; Lightning's FSDP asks for this hook."""

    def _after_init(self, arguments: dict[str, Any]) -> None:
        self._record_hyperparameters(arguments)
        self.build_networks()

    def _record_hyperparameters(self, arguments: dict[str, Any]) -> None:
        """Saves the arguments as plain containers, so that `cls(**hparams)` builds the same again.

        An argument that reached the base class as neither its default nor the caller's value was fixed by the subclass,
        and is no argument of it.
        """
        own = inspect.signature(type(self)).parameters
        received, self._received = self._received, {}
        arguments = {
            name: value
            for name, value in arguments.items()
            if name not in received or received[name] is value or name in own
        }
        self.save_hyperparameters({name: to_plain(value) for name, value in arguments.items()}, logger=False)

    def build_networks(self) -> None:
        """Builds the networks. Weights are a function of `seed`, whatever was drawn before."""
        with forked():
            torch.manual_seed(mix(self.seed, "networks"))
            networks = self.configure_networks()
        if tuple(networks) != self.network_names:
            raise TypeError(
                f"{type(self).__name__}.configure_networks() returned {tuple(networks)}, expected {self.network_names}."
            )
        for name, network in networks.items():
            if self.channels_last:
                network.to(memory_format=torch.channels_last)
            if self.compile_networks:
                network.compile()  # in place: the state-dict keys stay
            self.add_module(name, network)
