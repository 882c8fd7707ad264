"""Calls of one iteration: what does not change between the steps of the discriminator is done once."""

import inspect
import sys
from collections import Counter

import pytest
import torch
from lightning.pytorch import Callback

from lit_gans.callbacks import EMA

N_CRITIC = 3


class Calls(Callback):
    """Counts the calls of the second iteration by file and function, those of functions in C by their name."""

    def __init__(self):
        self.counts = Counter()

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 1:
            sys.setprofile(self._count)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        sys.setprofile(None)

    def _count(self, frame, event, argument):
        if event == "call":
            self.counts[f"{frame.f_code.co_filename.rpartition('/')[2]} {frame.f_code.co_name}"] += 1
        elif event == "c_call":
            self.counts[argument.__qualname__] += 1


@pytest.fixture
def counted(tiny_gan, random_images, fit):
    def run(name, **settings):
        module = tiny_gan(name, n_critic=N_CRITIC, **settings)
        fit(module, random_images(), 2, callbacks=[EMA(), calls := Calls()])
        return module, calls.counts

    return run


def number(*networks):
    return sum(1 for network in networks for _ in network.parameters())


def test_the_generator_thaws_between_steps_only_for_a_graph_of_its_own(counted):
    module, counts = counted("gan")
    expected = 2 * (N_CRITIC * number(module.generator) + number(module.discriminator))
    assert counts["Parameter.requires_grad_"] == expected


def test_networks_are_frozen_and_penalties_and_ranks_looked_up_once(counted):
    module, counts = counted("gan", generator_batch_multiple=2, r1_gamma=1.0)
    assert counts["Parameter.requires_grad_"] == 2 * number(module.generator, module.discriminator)
    assert counts["judging.py losses_and_penalties"] == N_CRITIC
    assert counts["optimization.py now"] == 2, "R1 and R2"
    assert counts["trainer.py global_rank"] == 0
    assert counts["trainer.py world_size"] == 1, "the images of an iteration"


def test_gradients_are_cleared_and_buffers_copied_without_a_wrapper(counted):
    _, counts = counted("dcgan")
    assert counts["optimizer.py zero_grad"] == N_CRITIC + 1
    assert counts["optimizer.py __getattr__"] == 0
    assert counts["_VariableFunctionsClass._foreach_copy_"] == 1
    assert counts["Tensor.copy_"] == 0


def test_what_a_user_freezes_during_the_training_stays_frozen(tiny_gan, random_images, fit):
    class Freeze(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            next(pl_module.generator.parameters()).requires_grad_(False)

    module = tiny_gan("gan", n_critic=2, generator_batch_multiple=2)
    first = next(module.generator.parameters())
    before = first.detach().clone()
    fit(module, random_images(), 2, callbacks=[Freeze()])
    assert not first.requires_grad
    assert torch.equal(first, before)


def test_small_weights_are_read_together(counted):
    _, counts = counted("dcgan")
    assert counts["_VariableFunctionsClass.cat"] == 2, "those of the generator and of the discriminator"
    assert counts["_VariableFunctionsClass._foreach_norm"] == 1
    assert counts["Tensor.reshape"] == 0, "losses are scalars"


def test_lightning_inspects_a_step_whose_signature_is_known(tiny_gan):
    step, calls = tiny_gan().training_step, Calls()
    sys.setprofile(calls._count)
    arguments = inspect.getfullargspec(step)  # as Lightning does in each iteration
    sys.setprofile(None)
    assert arguments.args == ["self", "data", "batch_idx"]
    assert calls.counts["inspect.py _signature_from_function"] == 0


def test_lightning_neither_profiles_nor_searches_the_module(counted):
    _, counts = counted("dcgan")
    assert counts["profiler.py profile"] == 0
    assert counts["module.py __setattr__"] == 3, "progress, number of images and losses"


def test_inside_itself_a_context_of_training_freezes_nothing(counted):
    _, counts = counted("wgan_gp")
    assert counts["freezing.py __enter__"] == N_CRITIC + 2, "of the iteration, of each step and of the generator"
    assert counts["freezing.py <listcomp>"] == 2
