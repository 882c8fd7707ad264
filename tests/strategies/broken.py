"""Strategies with one mechanism broken each: training under them must differ from one process, or raise."""

from contextlib import nullcontext
from unittest.mock import patch

import torch
from lightning.pytorch.overrides.distributed import prepare_for_backward
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed import optimizer as engine
from lit_gans.strategies.deepspeed import strategy as zero
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP


class NotArmed(NetworkDDP):
    """No replica takes part in a backward."""

    def pre_backward(self, closure_loss):
        self.reach_backward(*self.networks.values())


class ArmedTooEarly(NetworkDDP):
    """Replicas are armed before the forward passes of a step, and not for each backward that follows."""

    def training_step(self, *args, **kwargs):
        for replica in self.replicas.values():
            prepare_for_backward(replica, None)
        return super().training_step(*args, **kwargs)

    def pre_backward(self, closure_loss):
        self.reach_backward(*self.networks.values())


class ArmsAnother(NetworkDDP):
    """The replicas of the networks that do not train are armed."""

    def pre_backward(self, closure_loss):
        self.reach_backward(*self.networks.values())
        for name, network in self.networks.items():
            if not network.trains:
                prepare_for_backward(self.replicas[name], closure_loss)


class ReachesOthers(NetworkDDP):
    """A backward of a named network gives gradients to others."""

    def backward(self, closure_loss, optimizer, *args, network=None, **kwargs):
        with patch.object(type(self.networks["generator"]), "trains", False):
            return super().backward(closure_loss, optimizer, *args, network=network, **kwargs)


class KeepsOthers(NetworkFSDP):
    """A backward of a named network leaves gradients in others."""

    def backward(self, closure_loss, optimizer, *args, network=None, **kwargs):
        return super().backward(closure_loss, optimizer, *args, **kwargs)


class LooseAlone(NetworkFSDP):
    """Parameters that no sharded module has are not averaged."""

    def _average_loose(self):
        pass


class TogglesShards(NetworkDeepSpeed):
    """`toggle_optimizer` sees the flat shards that ZeRO gave the optimizers."""

    def setup_optimizers(self, trainer):
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            optimizer.param_groups = optimizer._given.param_groups


class ReachesOthersUnderZero(NetworkDeepSpeed):
    """A backward of a named network gives gradients to others."""

    def backward(self, *args, **kwargs):
        def everything(engines, loss, inputs, stage, retain_graph):
            engines[0].backward(loss, scale_wrt_gas=False)

        with patch.object(zero, "backward_into", everything):
            return super().backward(*args, **kwargs)


class KeepsState(NetworkDeepSpeed):
    """ZeRO is not told that another backward begins, as its forward would."""

    def backward(self, *args, **kwargs):
        with patch.object(engine, "prepare_backward", lambda *_: None):
            return super().backward(*args, **kwargs)


class Counts(NetworkDDP):
    """Sound, but counts the elements that it reduces."""

    reduced = 0

    def setup_optimizers(self, trainer):
        super().setup_optimizers(trainer)
        for replica in self.replicas.values():
            replica.register_comm_hook(None, self._count)

    def _count(self, state, bucket) -> torch.futures.Future[torch.Tensor]:
        self.reduced += bucket.buffer().numel()
        return allreduce_hook(None, bucket)


class ArmsAll(Counts):
    """Every replica is armed in each backward."""

    def pre_backward(self, closure_loss):
        self.reach_backward(*self.networks.values())
        for replica in self.replicas.values():
            prepare_for_backward(replica, closure_loss)


class ReducesTwice(Counts):
    """The backwards of all microbatches reduce."""

    def block_backward_sync(self):
        return nullcontext()


class KeepsGradients(NetworkDeepSpeed):
    """Stage 3 keeps the gradients that it has stepped with."""

    def training_step(self, *args, **kwargs):
        with patch.object(engine, "stored_gradients", lambda *_: []):
            return super().training_step(*args, **kwargs)


class ClipsByDefault(NetworkDeepSpeed):
    """Gradients are clipped at DeepSpeed's own default."""

    def _config_of(self, network):
        return super()._config_of(network) | {"gradient_clipping": 1.0}


class ReshardedLate(NetworkFSDP):
    """The critic stays unsharded over the step."""

    def before_step(self, network):
        with patch.object(self, "_penalized", {}):
            super().before_step(network)


class FrozenTooLong(NetworkFSDP):
    """A network that was unsharded while another trained does not learn that it trains again."""

    def before_step(self, network):
        generators = network is self.networks["generator"]
        with patch.object(self, "_penalized", {}) if generators else nullcontext():
            super().before_step(network)
