"""The average of a network of any module: the recursion by hand on one process, and the same under every strategy."""

from functools import cache, partial

import pytest
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback, OnExceptionCheckpoint
from torch.utils.data import DataLoader

from lit_gans.common._compat.torch import copy_all
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


def test_the_average_equals_the_recursion_written_by_hand():
    _, found, weights = alone()
    expected = by_hand(dict(Own().generator.named_parameters()), weights, first=1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
def test_the_average_is_equal_under_every_strategy_without_a_gather_in_a_step(tmp_path):
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


def test_the_average_continues_from_a_checkpoint(tmp_path):
    path, first, resumed = tmp_path / "a.ckpt", NetworkAverage("generator", 0.5), Trajectory("generator", 0.5)
    save = LambdaCallback(on_train_end=lambda trainer, *_: trainer.save_checkpoint(path))
    train(Own, devices=1, callbacks=[first, save])
    saved = torch.load(path, weights_only=True)["callbacks"][first.state_key]
    torch.testing.assert_close(saved["average"], first.full_average(), rtol=0, atol=0)
    resumed.load_state_dict(saved)
    train(Own, devices=1, callbacks=[resumed])
    expected = by_hand(saved["average"], resumed.weights, first=7)
    torch.testing.assert_close(resumed.full_average(), expected, rtol=1e-5, atol=1e-7)


class Validated(Own):
    """Notes what the generator computes in its validations, and the trained weights before each of them."""

    raises: BaseException | None = None

    def __init__(self):
        super().__init__()
        self.validated, self.trained = [], {}

    def on_train_batch_end(self, *arguments):
        super().on_train_batch_end(*arguments)
        self.trained = {name: value.clone() for name, value in self.generator.state_dict().items()}

    def validation_step(self, batch, batch_idx):
        self.validated.append(self.generator(batch).detach())
        if self.raises is not None and batch_idx == 1 and not self.trainer.sanity_checking:
            raise self.raises

    def val_dataloader(self):
        return DataLoader([torch.ones(1, 3)] * 3, batch_size=None)


class SavesAtOnce(Callback):
    """Saves a checkpoint in `on_exception`; unlike Lightning's, at its place in the list of callbacks."""

    def __init__(self, path):
        self.path = path

    def on_exception(self, trainer, *_):
        trainer.save_checkpoint(self.path)


def generator_in(checkpoint):
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    return {key.removeprefix("generator."): value for key, value in state.items() if key.startswith("generator.")}


def computed(weights):
    return torch.func.functional_call(Own().generator, weights, torch.ones(1, 3))


@pytest.mark.filterwarnings("ignore:.*was called without a model|.*there is no last checkpoint")  # Lightning's
@pytest.mark.parametrize("error", [ValueError("here"), KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("first", [True, False], ids=["average-first", "average-last"])
def test_an_exception_in_a_validation_leaves_the_trained_weights(tmp_path, error, first):
    module, average = Validated(), NetworkAverage("generator", 0.5)
    module.raises = error
    saves = [SavesAtOnce(tmp_path / "own.ckpt"), OnExceptionCheckpoint(tmp_path)]
    callbacks = [average, *saves] if first else [*saves, average]
    trainer = ranks.quiet_trainer(max_epochs=1, devices=1, callbacks=callbacks, enable_checkpointing=True)
    with pytest.raises(SystemExit if isinstance(error, KeyboardInterrupt) else type(error)):
        trainer.fit(module)
    for saved in (generator_in(tmp_path / "own.ckpt"), generator_in(tmp_path / "on_exception.ckpt")):
        torch.testing.assert_close(saved, module.trained, rtol=0, atol=0)
    torch.testing.assert_close(dict(module.generator.state_dict()), module.trained, rtol=0, atol=0)
    in_file = torch.load(tmp_path / "own.ckpt", weights_only=True)["callbacks"][average.state_key]["average"]
    torch.testing.assert_close(in_file, average.full_average(), rtol=0, atol=0)
    torch.testing.assert_close(module.validated[-1], computed(in_file), rtol=0, atol=1e-6)
    assert not torch.equal(computed(in_file), computed(module.trained))
    assert not module.generator._state_dict_pre_hooks, "a copy of the module would copy the callback"


class Interrupted:
    """Copies one tensor alone in one of the exchanges of weights, and then raises what a signal raises."""

    def __init__(self, exchange):
        self.exchange, self.num = exchange, 0

    def __call__(self, targets, sources):
        self.num += 1
        if self.num == self.exchange:
            copy_all(targets[:1], [*sources][:1])
            raise KeyboardInterrupt
        copy_all(targets, sources)


@pytest.mark.parametrize("exchange", [1, 2], ids=["to-the-average", "back"])
def test_an_interrupt_between_two_parameters_is_undone(monkeypatch, exchange):
    module, average, interrupted = Validated(), NetworkAverage("generator"), Interrupted(exchange)
    monkeypatch.setattr("lit_gans.strategies.average.copy_all", interrupted)
    trainer = ranks.quiet_trainer(max_epochs=1, devices=1, num_sanity_val_steps=0, callbacks=[average])
    with pytest.raises(SystemExit):
        trainer.fit(module)
    assert interrupted.num > exchange
    torch.testing.assert_close(dict(module.generator.state_dict()), module.trained, rtol=0, atol=0)
    trained, interrupted.num = module.trained, 0
    with pytest.raises(KeyboardInterrupt), average.averaged():
        pass
    torch.testing.assert_close(dict(module.generator.state_dict()), trained, rtol=0, atol=0)


def test_a_checkpoint_during_validation_has_the_trained_weights_and_the_validation_continues(tmp_path):
    module, average = Validated(), NetworkAverage("generator", 0.5)
    path = tmp_path / "a.ckpt"
    save = LambdaCallback(on_validation_batch_end=lambda trainer, *_: trainer.save_checkpoint(path, weights_only=True))
    ranks.quiet_trainer(max_epochs=1, devices=1, num_sanity_val_steps=0, callbacks=[save, average]).fit(module)
    torch.testing.assert_close(generator_in(path), module.trained, rtol=0, atol=0)
    expected = computed(average.full_average())
    assert len(module.validated) == 3
    for value in module.validated:
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


def test_after_an_exception_the_same_trainer_continues_the_average(tmp_path):
    module, average = Validated(), Trajectory("generator", 0.5)
    trainer = ranks.quiet_trainer(max_epochs=2, devices=1, callbacks=[average])
    module.raises = ValueError("here")
    with pytest.raises(ValueError, match="here"):
        trainer.fit(module)
    module.raises = None
    trainer.fit(module.train())  # Lightning leaves it in evaluation mode
    expected = by_hand(dict(Own().generator.named_parameters()), average.weights, first=1)
    torch.testing.assert_close(average.full_average(), expected, rtol=1e-5, atol=1e-7)


def test_validate_alone_uses_the_average_of_an_earlier_fit_or_of_a_checkpoint(tmp_path):
    module, average = Validated(), NetworkAverage("generator", 0.5)
    trainer = ranks.quiet_trainer(max_epochs=1, devices=1, callbacks=[average])
    trainer.fit(module)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    expected = computed(average.full_average())
    trainer.validate(module, verbose=False)
    torch.testing.assert_close(module.validated[-1], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(dict(module.generator.state_dict()), module.trained, rtol=0, atol=0)
    other, fresh = Validated(), NetworkAverage("generator", 0.5)
    other.load_state_dict(module.state_dict())
    with pytest.warns(UserWarning, match="there is no average of generator, so that the trained weights are validated"):
        ranks.quiet_trainer(devices=1, callbacks=[fresh]).validate(other, verbose=False)
    torch.testing.assert_close(other.validated[-1], computed(module.trained), rtol=0, atol=1e-6)
    ranks.quiet_trainer(devices=1, callbacks=[fresh]).validate(other, ckpt_path=tmp_path / "a.ckpt", verbose=False)
    torch.testing.assert_close(other.validated[-1], expected, rtol=0, atol=1e-6)


def test_another_module_starts_a_new_average():
    average = NetworkAverage("generator", 0.5)
    for _ in range(2):
        train(Own, devices=1, callbacks=[average])
        torch.testing.assert_close(average.full_average(), alone()[1], rtol=0, atol=0)


class ReadsState(Callback):
    """Keeps the state that a checkpoint would have after a batch of a validation."""

    def on_validation_batch_end(self, trainer, *_):
        self.state = {key: value.clone() for key, value in trainer.strategy.lightning_module_state_dict().items()}


def validated():
    """Returns by strategy what two validations in a training compute, and the weights afterwards."""
    found = {}
    for name in SHOWN:
        average, reads = NetworkAverage("generator", 0.5), ReadsState()
        arguments = {"strategy": STRATEGIES[name](), "callbacks": [average, reads], "num_sanity_val_steps": 0}
        module = Validated()
        ranks.quiet_trainer(max_epochs=2, devices=2, **arguments).fit(module)
        found[name] = module.validated, reads.state, average.full_average()
    return found


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
def test_validations_use_the_average_under_every_strategy_and_training_continues(tmp_path):
    module, average = Validated(), NetworkAverage("generator", 0.5)
    trainer = ranks.quiet_trainer(max_epochs=2, devices=1, num_sanity_val_steps=0, callbacks=[average])
    trainer.fit(module)
    for rank in ranks.run(f"{__name__}.validated", tmp_path):
        for values, saved, full in rank.values():
            for value, expected in zip(values, module.validated, strict=True):
                torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
            torch.testing.assert_close(full, average.full_average(), rtol=0, atol=1e-6)
            for key, value in module.trained.items():
                torch.testing.assert_close(saved[f"generator.{key}"], value, rtol=0, atol=1e-6)


def test_a_decay_that_diverges_is_refused():
    with pytest.raises(RefusedInput, match=r"decay=1.0 must lie in \[0, 1\)"):
        NetworkAverage("generator", 1)


def test_a_network_that_the_module_does_not_have_is_refused_with_those_that_it_has():
    with pytest.raises(
        RefusedInput, match=r"NetworkAverage\(unet\): Own has no such network, but has: generator, critic\."
    ):
        train(devices=1, callbacks=[NetworkAverage("unet")])
