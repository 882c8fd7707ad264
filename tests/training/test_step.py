"""The iteration, for every registered GAN."""

import pytest
import torch
from torch.utils.data import DataLoader

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.data.loader import StepSampler
from lit_gans.training.backend import Backend
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule
from lit_gans.training.step import TrainingStep
from lit_gans.training.trainer_backend import TrainerBackend
from tests.gans import GANS
from tests.training.linear_gan import PLAIN, LinearGAN, linear_gan, reference_steps


class Recorded:
    """Keeps what happens at each update of a network."""

    def __init__(self, module, monkeypatch):
        self.updates, original = [], TrainerBackend.step

        def update(backend, network):
            gradients = {name: getattr(module, name) for name in module.network_names}
            with_gradient = {n for n, net in gradients.items() if any(p.grad is not None for p in net.parameters())}
            before = {n: [p.clone() for p in net.parameters()] for n, net in gradients.items()}
            original(backend, network)
            changed = {
                n
                for n, net in gradients.items()
                if any((a != b).any() for a, b in zip(before[n], net.parameters(), strict=True))
            }
            self.updates.append((network, with_gradient, changed))

        monkeypatch.setattr(TrainerBackend, "step", update)


@pytest.mark.parametrize("name", GANS)
@pytest.mark.parametrize(("n_critic", "accumulate"), [(3, 1), (1, 2)])
def test_counts_generator_iterations_and_trains_one_network_at_a_time(
    tiny_gan, random_images, fit, monkeypatch, name, n_critic, accumulate
):
    module = tiny_gan(name, n_critic=n_critic, accumulate_gradients=accumulate)
    recorded, trained = Recorded(module, monkeypatch), [each.requires_grad for each in module.parameters()]
    trainer = fit(module, random_images(batch_size=4), max_steps=4)  # past the first epoch where n_critic is large
    assert trainer.global_step == 4
    discriminators = [*module.discriminator_names]
    last = ["generator", *discriminators] if module.generator_first else [*discriminators, "generator"]
    turn = discriminators * (n_critic - 1) + last
    assert [network for network, _, _ in recorded.updates] == turn * 4
    for network, with_gradient, changed in recorded.updates:
        others = set(module.discriminator_names) - {network} if network != "generator" else set()
        assert with_gradient - others == {network}
        assert changed == {network}
    assert [each.requires_grad for each in module.parameters()] == trained


@pytest.mark.parametrize("n_critic", [1, 2])
@pytest.mark.parametrize("make", ["dcgan", "linear"])
def test_equals_a_plain_loop(tiny_gan, random_images, fit, n_critic, make):
    make_module = linear_gan if make == "linear" else lambda **settings: tiny_gan("dcgan", **PLAIN, **settings)
    module, plain = (make_module(n_critic=n_critic, channels_last=False, seed=3) for _ in range(2))
    data = random_images(batch_size=8)
    fit(module, data, max_steps=3)
    images = [data.dataset.images[step].float() / 127.5 - 1 for step in StepSampler(48, 8, n_critic, 0, 1, 0)]
    losses = reference_steps(plain, images, 3)
    assert module.losses["generator"].item() == pytest.approx(losses[-1], rel=1e-5)
    assert not any(loss.requires_grad for loss in module.losses.values())
    for (name, ours), (_, theirs) in zip(module.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", GANS)
def test_plain_torch_trains_the_weights_of_a_trainer(tiny_gan, random_images, fit, name):
    """To the last bit, with everything that a backend does: two steps, microbatches, clipping and a schedule."""
    optimizer = OptimizerConfig("Adam", lr=1e-3, betas=(0.5, 0.9), schedule=LinearSchedule())
    optimizers = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), optimizer)
    settings = {"n_critic": 2, "accumulate_gradients": 2, "clip_gradients": 0.05, "r1_gamma": 0.5, **optimizers}
    lightning, plain = (tiny_gan(name, **settings) for _ in range(2))
    batches = [random_images().dataset[rows] for rows in torch.arange(3 * 16).split(16)]
    fit(lightning, DataLoader(batches, batch_size=None), max_steps=3)
    step = TrainingStep(plain, plain.new_backend(num_iterations=3))
    for iteration, batch in enumerate(batches):
        losses = step(batch, iteration)
    torch.testing.assert_close(plain.state_dict(), lightning.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(losses, lightning.losses, rtol=0, atol=0)
    assert [group["lr"] for group in step.backend.optimizers["generator"].param_groups] == [0.0]


def test_under_autocast_each_step_uses_the_weights_of_the_step_before(random_images):
    """Autocast keeps its casts of weights until its outermost context ends."""
    module = linear_gan(n_critic=2)
    step, images = TrainingStep(module, module.new_backend()), random_images().dataset[torch.arange(16)]
    with torch.autocast("cpu", torch.bfloat16):
        step(images, 0)
        inside = module.discriminator(images["image"] / 255)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module.discriminator(images["image"] / 255), inside)


def test_losses_under_other_names_than_those_of_the_discriminators_are_refused(tiny_gan, random_images, fit):
    module = tiny_gan("dcgan")
    losses = module.discriminator_losses
    module.discriminator_losses = lambda *given: {"critic": losses(*given)["discriminator"]}
    names = "returns losses of critic, but its discriminator_names are discriminator"
    with pytest.raises(RefusedInput, match=f"DCGAN.discriminator_losses {names}"):
        fit(module, random_images(), max_steps=1)


def test_a_batch_that_cannot_be_split_ends_the_training(fit):
    loader = DataLoader(torch.zeros(7, 1, 16, 16), batch_size=7)
    with pytest.raises(RefusedInput, match=r"7 images cannot be split into 2 equal pieces: .*drop_last=True"):
        fit(linear_gan(n_critic=2), loader, max_steps=1)
    fit(linear_gan(), loader, max_steps=1)


def test_layers_that_draw_are_seeded_by_seed_iteration_and_rank(random_images):
    """What dropout draws does not depend on what was drawn before the training, nor on a resume in between."""

    class SecondOfTwo(Backend):
        rank, world_size = 1, 2

    class Drawing(LinearGAN):
        def discriminator_losses(self, real, fake, batch):
            self.drawn.append(torch.rand(3))
            return super().discriminator_losses(real, fake, batch)

    module = Drawing(image_size=16, channels=1, latent_dim=6, seed=5, **PLAIN)
    module.drawn = []
    step = TrainingStep(module, SecondOfTwo(module.new_backend().optimizers))
    for iteration in range(3):
        torch.rand(iteration)
        step({"image": torch.zeros(8, 1, 16, 16)}, iteration)
    for iteration, drawn in enumerate(module.drawn):
        expected = torch.rand(3, generator=torch.Generator().manual_seed(mix(5, iteration, 1)))
        assert torch.equal(drawn, expected)


@pytest.mark.parametrize("n_critic", [1, 2])
def test_generated_images_for_both_updates_are_generated_once(tiny_gan, random_images, fit, n_critic):
    module, made = tiny_gan("dcgan", n_critic=n_critic), []
    module.generator.register_forward_hook(lambda network, inputs, images: made.append(images.requires_grad))
    fit(module, random_images(), max_steps=2)
    assert made == ([False] * (n_critic - 1) + [True]) * 2


@pytest.mark.parametrize("name", GANS)
@pytest.mark.parametrize(("n_critic", "accumulate"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_discriminators_train_on_the_images_of_with_fake(tiny_gan, random_images, fit, name, n_critic, accumulate):
    module = tiny_gan(name, n_critic=n_critic, accumulate_gradients=accumulate, share_scores=False)
    with_fake, for_discriminators, made, seen = module.with_fake, module.discriminator_batch, [], []

    def noted(batch):
        found = with_fake(batch)
        made.append(found["fake"])
        return found

    def shown(batch):
        seen.append(batch["fake"])
        return for_discriminators(batch)

    module.with_fake, module.discriminator_batch = noted, shown
    fit(module, random_images(batch_size=4), max_steps=2)
    assert len(seen) == 2 * n_critic * accumulate
    assert {fake.data_ptr() for fake in seen} <= {fake.data_ptr() for fake in made}


@pytest.mark.parametrize(("settings", "start"), [({"accumulate_gradients": 2}, 0), ({"n_critic": 2}, 1), ({}, 1)])
def test_noise_of_the_posterior_reaches_the_discriminator(tiny_gan, random_images, fit, settings, start):
    module, seen = tiny_gan("autoencoder_kl", discriminator_start=start, **settings), []

    def compare(batch):
        means = module.generator(batch["image"])[0]
        seen.append((batch["fake"] - means).abs().max().item())
        return batch

    module.discriminator_batch = compare
    fit(module, random_images(batch_size=4), max_steps=2)
    assert min(seen) > 1e-3
