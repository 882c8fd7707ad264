"""What all ranks must decide alike, and what may come in any order."""

import pytest
import torch
from lightning.pytorch import Callback

from lit_gans.callbacks import EMA, RunCheckpoint
from lit_gans.checkpoints.format import FORMAT_KEY
from lit_gans.common._compat.torch import process_groups
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.augmentation import EVERY, Adaptive

from . import ranks
from .cells import Cell, many_images, train

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

LOSS = "loss/discriminator"


STRATEGIES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}
SECONDS = 77.0  # that a rank waits for the others


class Losses(Callback):
    """Keeps this rank's loss of each iteration."""

    def __init__(self):
        self.values = []

    def on_train_batch_end(self, trainer, *_):
        self.values.append(trainer.callback_metrics[LOSS].item())


class GathersAtOnce(Callback):
    """As a callback that samples, before there is an average."""

    def on_train_start(self, trainer, pl_module):
        pl_module.gather_generator()


class Overfits(Callback):
    """Adapts an augmentation as if only the discriminator of rank 0 overfitted; on average, they do."""

    def on_train_start(self, trainer, pl_module):
        pl_module.augmentations.augmenter = Adaptive(target=0.0, over=8 * EVERY * 2)
        pl_module.augmentations.state = torch.tensor([0.0, -600.0 if trainer.global_rank else 1000.0, 1000.0])


class Timeouts(Callback):
    """Keeps the seconds that the groups of this process wait, while it trains."""

    def on_train_batch_start(self, *_):
        backends = [group._get_backend(torch.device("cpu")) for group in process_groups()]
        self.seconds = [backend.options._timeout.total_seconds() for backend in backends]


def timeouts():
    """Returns the timeouts of all groups under each strategy."""
    found = {}
    for name, strategy in STRATEGIES.items():
        callback = Timeouts()
        train(Cell("gan"), many_images(), world_size=2, callbacks=[callback], strategy=strategy(timeout=SECONDS))
        found[name] = callback.seconds
    return found


def on_a_rank(where):
    """Returns this rank's losses, the best value and step that it found, the state of an adaptive augmentation, and the
    average of a late EMA.
    """
    losses, checkpoint = Losses(), RunCheckpoint(monitor=LOSS)
    arguments = {"world_size": 2, "default_root_dir": where, "enable_checkpointing": True}
    train(Cell("gan"), many_images(), callbacks=[losses, checkpoint], strategy=NetworkDDP(timeout=30.0), **arguments)
    ada = train(
        Cell("gan"), many_images(), callbacks=[Overfits()], strategy=NetworkDDP(), max_steps=EVERY + 1, **arguments
    )
    ada.trainer.save_checkpoint(where / "ada.ckpt")
    late = train(
        Cell("d2gan"), many_images(), callbacks=[GathersAtOnce(), EMA(0.5)], strategy=NetworkFSDP(), **arguments
    )
    best = checkpoint.best_value, checkpoint.best_step
    return losses.values, *best, ada.augmentations.state, late.averaged_generator.state_dict()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def found(folder):
    return ranks.run("tests.strategies.test_agreement.on_a_rank", folder, where=folder)


def test_a_monitored_loss_is_the_mean_of_all_ranks(found):
    losses = torch.tensor([values for values, *_ in found], dtype=torch.double)
    assert (losses[0] - losses[1]).abs().min() > 1e-5, "each rank has images of its own"
    mean, step = losses.mean(0).min(0)
    for _, value, best_step, *_ in found:
        assert value == pytest.approx(mean.item(), abs=1e-12)
        assert best_step == step + 1


def test_the_mean_over_ranks_decides_on_an_adaptive_augmentation(found, folder):
    states = torch.stack([state for *_, state, _ in found])
    assert states[:, 0].tolist() == [0.5, 0.5], "also on rank 1, whose own scores say less augmentation"
    assert states[:, 2].tolist() == [4, 4], "each rank's images since then"
    stored = torch.load(folder / "ada.ckpt", weights_only=False)[FORMAT_KEY]["augmentation"]
    torch.testing.assert_close(stored, states.mean(0))


def test_an_average_may_begin_after_another_callback_asked_for_it(found):
    alone = train(Cell("d2gan"), many_images(), callbacks=[EMA(0.5)]).averaged_generator.state_dict()
    for *_, average in found:
        torch.testing.assert_close(average, alone, rtol=0, atol=1e-6)


def test_no_group_of_any_strategy_waits_longer_than_its_timeout(tmp_path):
    for found in ranks.run("tests.strategies.test_agreement.timeouts", tmp_path):
        for name in STRATEGIES:
            assert {*found[name]} == {SECONDS}, name
