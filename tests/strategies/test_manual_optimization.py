"""What Lightning leaves to manual optimization: it is said, or one callback changes it."""

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.manual_optimization import CountIterations, WatchManualOptimization

from .own_modules import Automatic, Own
from .test_grad_scaling import WithoutAutocast, stock_scaling
from .test_own_module import train


class Scheduled(Own):
    steps_schedulers = False

    def configure_optimizers(self):
        optimizers = super().configure_optimizers()
        return optimizers, [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]

    def on_train_batch_end(self, *arguments):
        super().on_train_batch_end(*arguments)
        for scheduler in self.lr_schedulers()[: 2 * self.steps_schedulers]:
            scheduler.step()


class Stepped(Scheduled):
    steps_schedulers = True


def test_schedulers_that_never_step_give_a_warning():
    train(Scheduled, devices=1)  # silently, with Lightning's own strategy
    with pytest.warns(UserWarning, match="a ExponentialLR was configured and never stepped") as said:
        train(Scheduled, devices=1, strategy=NetworkDDP())
    assert sum("never stepped" in str(each.message) for each in said) == 2
    train(Stepped, devices=1, strategy=NetworkDDP())  # any warning is an error
    with pytest.warns(UserWarning, match="a ExponentialLR was configured and never stepped"):
        train(Scheduled, devices=1, callbacks=[WatchManualOptimization()])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"gradient_clip_val": 0.5}, r'call self.clip_gradients\(optimizer, 0.5, "norm"\)'),
        ({"gradient_clip_algorithm": "value"}, r"gradient_clip_algorithm='value'\) has no effect on Own"),
        ({"accumulate_grad_batches": 2}, r"divide each loss by 2, .* self.trainer.strategy.block_backward_sync\(\)"),
        ({"callbacks": [GradientAccumulationScheduler({0: 2})]}, "divide each loss by NUMBER"),
    ],
)
def test_arguments_that_only_automatic_optimization_follows_name_what_a_module_can_do(arguments, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        train(devices=1, strategy=NetworkDDP(), **arguments)


class Emptied(Own):
    """Removes the gradients before each step instead of after it."""

    def step(self, optimizer):
        optimizer.zero_grad()
        optimizer.step()


def test_an_optimizer_that_never_has_a_gradient_gives_a_warning():
    train(Emptied, devices=1)  # silently, with Lightning's own strategy
    for strategy in (NetworkDDP, NetworkFSDP, NetworkDeepSpeed):
        with pytest.warns(UserWarning, match="stepped without a gradient in every step") as said:
            train(Emptied, devices=1, strategy=strategy())
        sentences = [str(each.message) for each in said]
        for name in ("generator", "critic"):
            assert any(f"the optimizer of {name} stepped without" in sentence for sentence in sentences)
        train(devices=1, strategy=strategy())  # any warning is an error


@pytest.mark.parametrize("arguments", [{"gradient_clip_val": 0.5}, {"accumulate_grad_batches": 2}])
def test_automatic_optimization_follows_them(arguments):
    train(Automatic, devices=1, strategy=NetworkDDP(), **arguments)


def test_max_steps_that_counts_every_optimizer_gives_a_warning():
    with pytest.warns(UserWarning, match="max_steps=4 counts the steps of every optimizer, 4 in 2 batches"):
        train(devices=1, strategy=NetworkDDP(), max_steps=4)
    counted = train(devices=1, strategy=NetworkDDP(), max_steps=4, callbacks=[CountIterations()]).trainer
    assert counted.global_step == 4


class ClipsByHand(Own):
    """Clips as torch does it outside Lightning."""

    def step(self, optimizer):
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 0.01)
        super().step(optimizer)


SCALED = {"strategy": {"strategy": NetworkDDP}, "plugin": {}, "Lightning": {"callbacks": WatchManualOptimization}}


@pytest.mark.parametrize("way", SCALED)
def test_clipping_of_scaled_gradients_gives_a_warning(way):
    def run(module):
        plugins = [stock_scaling() if way == "Lightning" else WithoutAutocast()]
        arguments = {name: [make()] if name == "callbacks" else make() for name, make in SCALED[way].items()}
        train(module, devices=1, plugins=plugins, **arguments)

    with pytest.warns(UserWarning, match="changed after their backward pass, while they were still scaled") as said:
        run(ClipsByHand)
    found = [str(each.message).split()[3].split(".")[0] for each in said if "still scaled" in str(each.message)]
    assert found == ["critic", "generator"]  # each once
    run(Own)  # any warning is an error


def test_clipping_by_hand_in_float32_gives_no_warning():
    train(ClipsByHand, devices=1, callbacks=[WatchManualOptimization()])


def test_a_batch_without_a_step_counts_nothing():
    class EverySecond(Own):
        def step(self, optimizer):
            if self.trainer.fit_loop.epoch_loop.batch_idx % 2:
                super().step(optimizer)

    assert train(EverySecond, devices=1, callbacks=[CountIterations()]).trainer.global_step == 3
