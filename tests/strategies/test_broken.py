"""A strategy with one mechanism broken trains other weights than one process, reduces more, or raises."""

from unittest.mock import patch

import pytest
import torch
from lightning.pytorch.overrides.distributed import prepare_for_backward
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from lit_gans.strategies import fsdp
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed import optimizer as engine
from lit_gans.strategies.deepspeed import strategy as zero
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import cells, ranks
from .acceptance.cells import EXAMPLES, STEPS, Cell
from .acceptance.cells import train as train_example
from .acceptance.cells import trained_alone as example_alone
from .own_modules import Names, Partly, Penalized
from .test_own_module import train as train_own
from .test_own_module import trained_alone as own_alone


class NotArmed(NetworkDDP):
    """No replica takes part in a backward."""

    def prepare(self, trained, loss):
        pass


class ArmedTooEarly(NetworkDDP):
    """Replicas are armed before the forward passes of a step, and not for each backward that follows."""

    def training_step(self, *args, **kwargs):
        for replica in self.replicas.values():
            prepare_for_backward(replica, None)
        return super().training_step(*args, **kwargs)

    def prepare(self, trained, loss):
        pass


class ArmsAnother(NetworkDDP):
    """The replicas of the networks that do not train are armed."""

    def prepare(self, trained, loss):
        super().prepare([network for network in self.networks.values() if not network.trains], loss)


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
    """Networks stay unsharded over their steps."""

    def _reshard_all(self):
        pass


class NamesPenalized(Names, Penalized):
    """Freezes nothing, so that no toggle makes up for a missing reshard."""


class FrozenTooLong(NetworkFSDP):
    """A network that was unsharded while another trained does not learn that it trains again."""

    def _reshard_all(self):
        pass

    def training_step(self, *args, **kwargs):
        with patch.object(fsdp, "_reshard", lambda module: None):
            return super().training_step(*args, **kwargs)


BROKEN = {
    "never armed": (NotArmed, {}, Cell("Vocoder", "")),
    "armed too early": (ArmedTooEarly, {}, Cell("Vocoder", "", accumulate=2)),
    "another network armed": (ArmsAnother, {}, Cell("LightningGAN", "")),
    "ddp gives others gradients": (ReachesOthers, {}, Names),
    "fsdp leaves others gradients": (KeepsOthers, {}, Names),
    "fsdp averages no single parameter": (LooseAlone, {}, Cell("Autoencoder", "")),
    "zero toggles flat shards": (TogglesShards, {"stage": 2}, Cell("LightningGAN", "")),
    "stage 0 gives others gradients": (ReachesOthersUnderZero, {"stage": 0}, Names),
    "stage 1 gives others gradients": (ReachesOthersUnderZero, {"stage": 1}, Names),
    "stage 3 overwrites what accumulates": (KeepsState, {"stage": 3}, Cell("Vocoder", "", accumulate=2)),
    "stage 3 keeps gradients": (KeepsGradients, {"stage": 3}, Partly),
    "stage 0 clips by default": (ClipsByDefault, {"stage": 0}, Cell("WGANGP", "")),
    "stage 2 clips by default": (ClipsByDefault, {"stage": 2}, Cell("WGANGP", "")),
    "stage 3 clips by default": (ClipsByDefault, {"stage": 3}, cells.Cell("pix2pix")),
    "fsdp keeps networks unsharded over their steps": (ReshardedLate, {"wrap": "layer"}, NamesPenalized),
    "fsdp keeps a critic frozen": (FrozenTooLong, {"wrap": "layer"}, cells.Cell("wgan_gp")),
}
REDUCED = {
    "plain": ({}, Cell("LightningGAN", "")),
    "accumulated": ({}, Cell("LightningGAN", "", accumulate=2)),
    "searched": ({"find_unused_parameters": True}, Cell("LightningGAN", "")),
}


FOUND_AT_ONCE = (
    "RefusedInput: the optimizer of generator received",
    "ran two backward passes before its step",
    "differ between the processes after the first iteration",
)


def train(what, strategy):
    """Trains a GAN of this project, an example or a module of `own_modules`."""
    if isinstance(what, cells.Cell):
        return cells.train(what, cells.many_images(), world_size=2, strategy=strategy)
    run = train_example if isinstance(what, Cell) else train_own
    return run(what, strategy=strategy, devices=2)


def on_a_rank():
    """Returns the weights or the error of each broken strategy, and the elements that strategies reduce."""
    ended, reduced = {}, {}
    for name, (cls, settings, what) in BROKEN.items():
        strategy = cls(**settings)
        try:
            train(what, strategy)
            ended[name] = {key: value.clone() for key, value in strategy.lightning_module_state_dict().items()}
        except Exception as error:
            ended[name] = f"{type(error).__name__}: {error}"
    for name, (settings, what) in REDUCED.items():
        strategy = Counts(**settings)
        train(what, strategy)
        reduced[name] = strategy.reduced
    return ended, reduced


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run(f"{__name__}.on_a_rank", tmp_path_factory.mktemp("broken"))


def trained_alone(what):
    """Returns the weights that one process trains."""
    if isinstance(what, Cell):
        return example_alone(what.example, what.accumulate, None, False)
    return cells.trained_alone(what) if isinstance(what, cells.Cell) else own_alone(what)


@pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_strategy_is_found(found, name):
    what = BROKEN[name][-1]
    for ended, _ in found:
        if isinstance(ended[name], str):
            assert any(sentence in ended[name] for sentence in FOUND_AT_ONCE), ended[name]
            continue
        assert max((ended[name][key] - value).abs().max() for key, value in trained_alone(what).items()) > 1e-4


def test_each_network_is_reduced_once_a_step(found):
    for _, reduced in found:
        once = STEPS * sum(parameter.numel() for parameter in EXAMPLES["LightningGAN"]().parameters())
        assert reduced == dict.fromkeys(REDUCED, once)
