"""Backward and step without Lightning's hooks: only where nobody has a hook, and with the same weights."""

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler

from lit_gans import DCGAN
from lit_gans.training.plain import Unprofiled


class Hooked(Callback):
    """Counts what Lightning announces."""

    def __init__(self):
        self.counts = {"before": 0, "after": 0, "step": 0}

    def on_before_backward(self, trainer, pl_module, loss):
        self.counts["before"] += 1

    def on_after_backward(self, trainer, pl_module):
        self.counts["after"] += 1

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.counts["step"] += 1


class Actions(PassThroughProfiler):
    """Notes what Lightning profiles."""

    def __init__(self):
        super().__init__()
        self.actions = []

    def start(self, action_name):
        self.actions.append(action_name)


def weights(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@pytest.mark.parametrize("settings", [{}, {"clip_gradients": 0.1}, {"accumulate_gradients": 2}], ids=str)
def test_weights_do_not_depend_on_hooks(tiny_gan, random_images, fit, settings):
    plain, hooked = tiny_gan("sngan", n_critic=2, **settings), tiny_gan("sngan", n_critic=2, **settings)
    batches = plain.batches_per_step
    fit(plain, random_images(), 2)
    fit(hooked, random_images(), 2, callbacks=[callback := Hooked()])
    assert torch.equal(weights(plain), weights(hooked))
    assert plain.trainer.global_step == 2
    assert plain.trainer.fit_loop.state_dict() == hooked.trainer.fit_loop.state_dict(), "what a resume continues"
    num = settings.get("accumulate_gradients", 1)
    assert callback.counts == {"before": 6 * num, "after": 6 * num, "step": 6}, f"{batches} batches a step"


def test_who_needs_the_hooks(tiny_gan, random_images, fit):
    class Own(DCGAN):
        def on_after_backward(self):
            """A hook of a user's module."""

    def plainly(module, **settings):
        fit(module, random_images(), 1, **settings)
        return module._steps_plainly

    assert plainly(tiny_gan())
    assert plainly(tiny_gan(), precision="bf16-mixed")
    assert plainly(tiny_gan(), callbacks=[Callback()])
    assert not plainly(tiny_gan(), callbacks=[Hooked()])
    assert not plainly(tiny_gan(), profiler=SimpleProfiler())
    assert not plainly(tiny_gan(), profiler=Actions())
    assert not plainly(tiny_gan(), precision="64-true")
    assert not plainly(Own(image_size=16, channels=1, latent_dim=8, generator_width=4, discriminator_width=4))


def test_only_the_profiler_that_does_nothing_is_left_out(tiny_gan, random_images, fit):
    module = tiny_gan()
    fit(module, random_images(), 2, profiler=(profiler := Actions()))
    assert module.trainer.profiler is profiler
    assert profiler.actions.count("run_training_batch") == 2
    fit(module, random_images(), 1)
    assert type(module.trainer.profiler) is Unprofiled
    assert isinstance(module.trainer.profiler, PassThroughProfiler), "as others may ask"
