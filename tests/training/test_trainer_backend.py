"""One update of a network: penalties, schedules, clipping, accumulation."""

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from lit_gans import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.training.augmentation import Scheduled
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule
from tests.training.linear_gan import SMALL, LinearGAN, descend, linear_gan

ACCUMULATED = {
    "plain": {},
    "penalty, clipping and schedule": {
        "n_critic": 2,
        "r1_gamma": 0.7,
        "clip_gradients": 0.05,
        "generator_optimizer": OptimizerConfig("SGD", lr=0.1, schedule=LinearSchedule()),
    },
    "augmentations": {"diffaugment": ("color", "translation", "cutout"), "augmentation": Scheduled(0.5)},
}


@pytest.mark.parametrize("settings", ACCUMULATED)
def test_accumulated_microbatches_train_as_the_full_batch(random_images, fit, settings):
    states, losses = [], []
    for microbatches in (1, 2):
        module = linear_gan(accumulate_gradients=microbatches, **ACCUMULATED[settings])
        trainer = fit(module, random_images(batch_size=8 // microbatches), max_steps=3)
        states.append(module.state_dict())
        losses.append({name: value.item() for name, value in trainer.callback_metrics.items() if "loss/" in name})
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)
    assert set(losses[0]) == {"loss/generator", "loss/discriminator"}
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("bound", [0.05, 1e6])
def test_clipping_is_that_of_torch_on_each_network_in_each_update(random_images, fit, bound):
    steps = []

    class Compares(LinearGAN):
        def on_before_optimizer_step(self, optimizer):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
            for copied, parameter in zip(copies, parameters, strict=True):
                copied.grad = parameter.grad.clone()
            before = torch.nn.utils.clip_grad_norm_(copies, bound)
            super().on_before_optimizer_step(optimizer)
            for copied, parameter in zip(copies, parameters, strict=True):
                torch.testing.assert_close(parameter.grad, copied.grad, rtol=1e-6, atol=0)
            steps.append((before > bound).item())

    fit(Compares(**SMALL, clip_gradients=bound, n_critic=2), random_images(), max_steps=2)
    assert len(steps) == 2 * (2 + 1)
    assert any(steps) == (bound < 1)


@pytest.mark.parametrize("optimizers", [["discriminator", "generator"], ["generator"]])
def test_optimizers_of_other_networks_are_refused(random_images, fit, optimizers):
    class Own(LinearGAN):
        def configure_optimizers(self):
            return [torch.optim.SGD(self.get_submodule(name).parameters(), 0.1) for name in optimizers]

    class WithScale(LinearGAN):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.scale = nn.Parameter(torch.ones(()))

        def configure_optimizers(self):
            weights = [[*self.generator.parameters(), self.scale], self.discriminator.parameters()]
            return [torch.optim.SGD(each, 0.1) for each in weights]

    fit(WithScale(**SMALL), random_images(), max_steps=1)
    with pytest.raises(RefusedInput, match="one optimizer for each network, in the order generator, discriminator"):
        fit(Own(**SMALL), random_images(), max_steps=1)


def test_r1_enters_the_training_in_its_iterations_with_its_weight(random_images, fit):
    """Against the plain loop with the penalty written out: gamma / 2 E|grad D|^2, times r1_every, at 0 and 2."""
    module, plain = (linear_gan(r1_gamma=0.7, r1_every=2, channels_last=False) for _ in range(2))
    data = random_images(batch_size=8)
    fit(module, data, max_steps=4)
    images = [data.dataset.images[step].float() / 127.5 - 1 for step in list(data._sampler())[:4]]
    for iteration, real in enumerate(images):
        latents = Noise(torch.Generator(), (0, "discriminator", iteration, 0)).normal("latents", 8, 6)
        real = real.requires_grad_()
        loss = plain.discriminator_losses(real, plain.generator(latents).detach(), {})["discriminator"].loss
        if iteration in (0, 2):
            (slope,) = torch.autograd.grad(plain.discriminator(real).sum(), real, create_graph=True)
            loss = loss + 2 * 0.7 / 2 * slope.square().sum((1, 2, 3)).mean()
        descend(plain.discriminator, loss, 0.1)
        latents = Noise(torch.Generator(), (0, "generator", iteration)).normal("latents", 8, 6)
        descend(plain.generator, plain.generator_loss(plain.generator(latents), {}), 0.1)
    torch.testing.assert_close(module.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "rates"),
    [
        ("generator", [0.1, 0.1, 1.0, 0.1, 0.1, 0.75, 0.1, 0.1, 0.5, 0.1, 0.1, 0.25]),
        ("discriminator", [1.0, 1.0, 0.1, 0.75, 0.75, 0.1, 0.5, 0.5, 0.1, 0.25, 0.25, 0.1]),
    ],
)
def test_each_network_follows_its_own_schedule_over_generator_iterations(random_images, fit, network, rates):
    module, found = (
        linear_gan(n_critic=2, **{f"{network}_optimizer": OptimizerConfig("SGD", lr=1.0, schedule=LinearSchedule())}),
        [],
    )
    module.on_before_optimizer_step = lambda optimizer: found.append(optimizer.param_groups[0]["lr"])
    fit(module, random_images(batch_size=4), max_steps=4)
    assert found == pytest.approx(rates)


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
