"""The average of a network of any module: the recursion by hand on one process, and the same under every strategy."""

from functools import cache, partial

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.average import NetworkAverage
from lit_gans.strategies.base import sharding

from . import ranks
from .own_modules import Own
from .test_own_module import STRATEGIES, train

SHOWN = ["ddp", "deepspeed_3", "fsdp_layer"]


class Trajectory(NetworkAverage):
    """Keeps the generator's weights after each batch."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.weights = []

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        super().on_train_batch_end(trainer, pl_module, *arguments)
        self.weights.append({name: parameter.clone() for name, parameter in pl_module.generator.named_parameters()})


class CountsGathers(NetworkAverage):
    """Counts the gathers of its updates."""

    gathers = 0

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        self.strategy = trainer.strategy
        strategy = sharding(trainer.strategy)
        if strategy is not None:
            strategy.unshard = partial(self.count, strategy.unshard)

    def count(self, gather, *arguments):
        self.gathers += 1
        return gather(*arguments)

    def on_train_end(self, trainer, pl_module):
        self.gathered_by_updates = self.gathers
        with self.averaged():
            self.computed = pl_module.generator(torch.ones(1, 3)).detach()
            self.shown = {n: value.clone() for n, value in self.strategy.lightning_module_state_dict().items()}
        self.trained = self.strategy.lightning_module_state_dict()
        self.saved = self.state_dict()
        self.spare = self.spare_bytes(pl_module)

    def spare_bytes(self, module):
        """Returns how many bytes of full tensors stay in memory with the shards that a resumed average begins with."""
        strategy, parameters = sharding(self.strategy), list(module.generator.parameters())
        if strategy is None:
            return 0
        full = [strategy.unshard(strategy.local_shard(each).detach(), each) for each in parameters]
        shards = [strategy.shard(value, each) for value, each in zip(full, parameters, strict=True)]
        return sum(shard.untyped_storage().nbytes() - shard.nbytes for shard in shards)


def averages():
    """Returns by strategy gathers, what the average computes, its weights, those trained, its state, spare bytes."""
    found = {}
    for name in SHOWN:
        average = CountsGathers("generator", 0.5)
        train(Own, devices=2, strategy=STRATEGIES[name](), callbacks=[average])
        weights = average.shown, average.trained, average.saved
        found[name] = average.gathered_by_updates, average.computed, *weights, average.spare
    return found


@cache
def alone():
    average = Trajectory("generator", 0.5)
    module = train(Own, devices=1, callbacks=[average])
    return module.state_dict(), average.full_average(), average.weights


def by_hand(average, weights, first):
    for step, trained in enumerate(weights, start=first):
        kept = min(0.5, (1 + step) / (10 + step))
        average = {name: kept * average[name] + (1 - kept) * trained[name] for name in trained}
    return {name: value.detach() for name, value in average.items()}


def test_is_the_recursion_written_by_hand():
    _, found, weights = alone()
    expected = by_hand(dict(Own().generator.named_parameters()), weights, first=1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The total number of parameters")
def test_is_the_same_under_every_strategy_without_a_gather_in_a_step(tmp_path):
    trained, average, _ = alone()
    for rank in ranks.run(f"{__name__}.averages", tmp_path):
        for name in SHOWN:
            gathers, computed, shown, restored, saved, spare = rank[name]
            assert (gathers, spare) == (0, 0), name
            expected = torch.func.functional_call(Own().generator, average, torch.ones(1, 3))
            torch.testing.assert_close(computed, expected, rtol=0, atol=1e-6)
            torch.testing.assert_close({key: shown[f"generator.{key}"] for key in average}, average, rtol=0, atol=1e-6)
            torch.testing.assert_close(saved["average"], average, rtol=0, atol=1e-6)
            torch.testing.assert_close(restored, trained, rtol=0, atol=1e-6)


def test_a_checkpoint_continues_it(tmp_path):
    path, first, resumed = tmp_path / "a.ckpt", NetworkAverage("generator", 0.5), Trajectory("generator", 0.5)
    save = LambdaCallback(on_train_end=lambda trainer, *_: trainer.save_checkpoint(path))
    train(Own, devices=1, callbacks=[first, save])
    saved = torch.load(path, weights_only=True)["callbacks"][first.state_key]
    torch.testing.assert_close(saved["average"], first.full_average(), rtol=0, atol=0)
    resumed.load_state_dict(saved)
    train(Own, devices=1, callbacks=[resumed])
    expected = by_hand(saved["average"], resumed.weights, first=7)
    torch.testing.assert_close(resumed.full_average(), expected, rtol=1e-5, atol=1e-7)


def test_a_decay_that_diverges_is_refused():
    with pytest.raises(RefusedInput, match=r"decay=1 must lie in \[0, 1\)"):
        NetworkAverage("generator", 1)
