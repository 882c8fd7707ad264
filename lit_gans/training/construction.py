"""Construction of generative modules: records arguments and builds networks after all constructors have run."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

import torch
from torch import nn

from lit_gans.checkpoints.format import constructor_arguments, to_plain
from lit_gans.common._compat.lightning import QuickHookNames
from lit_gans.common.memory import refused_if_too_large
from lit_gans.common.noise import forked, mix


class ConstructedLast(ABCMeta):
    """Metaclass of `ConstructedModule`: calls `_after_init` once the constructors of all subclasses have run.

    A constructor cannot do this itself, since a subclass sets the attributes that `configure_networks` reads after
    `super().__init__()`. A GAN's constructor thus stays ordinary Python, and a constructed module is an ordinary
    `nn.Module` with its networks: `parameters()`, `to()`, `state_dict()` and `load_state_dict()` work as usual.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Constructs a module."""
        module = super().__call__(*args, **kwargs)
        module._after_init(constructor_arguments(cls, args, kwargs))
        return module

    @property
    def __signature__(cls) -> inspect.Signature:
        """Signature of the constructor; Python would otherwise report the signature of `__call__`."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]  # the subclass's constructor is intended
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class ConstructedModule(QuickHookNames, metaclass=ConstructedLast):
    """Base class that builds networks from the module's seed and saves its arguments as plain hyperparameters.

    Args:
        seed: seed of the weights and all other random numbers of the training.
        channels_last: whether the networks use the channels-last memory layout.
        compile: whether to compile the networks, in place.
    """

    generator: nn.Module

    def __init__(self, seed: int, channels_last: bool, compile: bool) -> None:
        super().__init__()
        self.seed = seed
        self.channels_last = channels_last
        self.compile_networks = compile
        self._received: dict[str, Any] = {}  # the arguments that reached this base class

    @property
    def network_names(self) -> tuple[str, ...]:
        """Names of the networks, the generator's first."""
        return ("generator",)

    def configure_networks(self) -> dict[str, nn.Module]:
        """Returns new networks by name: `generator` and, for a GAN, one for each of `discriminator_names`."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Does nothing, since the constructor builds the networks; Lightning's FSDP requires this hook."""

    def _after_init(self, arguments: dict[str, Any]) -> None:
        self._record_hyperparameters(arguments)
        self.build_networks()

    def _record_hyperparameters(self, arguments: dict[str, Any]) -> None:
        """Saves the arguments as plain containers, so that `cls(**hparams)` builds the same module again.

        A base-class argument whose value is neither its default nor the caller's value was fixed by the subclass and
        is not one of the subclass's arguments.
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
        """Builds the networks. Weights depend on `seed` alone, whatever the state of the global random generators."""
        with forked():
            torch.manual_seed(mix(self.seed, "networks"))
            with refused_if_too_large("the networks"):
                networks = self.configure_networks()
        if tuple(networks) != self.network_names:
            raise TypeError(
                f"{type(self).__name__}.configure_networks() returned {tuple(networks)}, expected {self.network_names}."
            )
        for name, network in networks.items():
            if self.channels_last:
                network.to(memory_format=torch.channels_last)
            if self.compile_networks:
                network.compile()  # in place, so that state-dict keys do not change
            self.add_module(name, network)
