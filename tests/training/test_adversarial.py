"""The loop, for every registered GAN."""

import inspect

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise, mix
from lit_gans.config.registry import gans
from lit_gans.data.loader import StepSampler
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.batch import prepare_batch, split_batch
from lit_gans.training.optim import SGD
from lit_gans.training.schedules import Linear

GANS = [name for name, cls in gans().items() if cls.__module__.startswith("lit_gans.")]
PLAIN = {"generator_optimizer": SGD(learning_rate=0.1), "discriminator_optimizer": SGD(learning_rate=0.1)}


class LinearGAN(AdversarialModule):
    """No batch norm, so that microbatches do not affect each other: the loop alone is under test."""

    def configure_networks(self):
        pixels = self.channels * self.image_size**2
        shape = (self.channels, self.image_size, self.image_size)
        return {
            "generator": nn.Sequential(nn.Linear(self.latent_dim, pixels), nn.Tanh(), nn.Unflatten(1, shape)),
            "discriminator": nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.Softplus(), nn.Linear(8, 1)),
        }

    def discriminator_losses(self, real, fake, batch):
        real, fake = self.discriminator(real), self.discriminator(fake)
        return {"discriminator": functional.softplus(-real).mean() + functional.softplus(fake).mean()}

    def generator_loss(self, fake, batch):
        return functional.softplus(-self.discriminator(fake)).mean()


def linear_gan(**settings):
    return LinearGAN(**{"image_size": 16, "channels": 1, "latent_dim": 6, **PLAIN, **settings})


class Recorded:
    """Keeps what happens at each update of a network."""

    def __init__(self, module):
        self.updates, original = [], module.step_network

        def update(network):
            gradients = {name: getattr(module, name) for name in module.network_names}
            with_gradient = {n for n, net in gradients.items() if any(p.grad is not None for p in net.parameters())}
            before = {n: [p.clone() for p in net.parameters()] for n, net in gradients.items()}
            original(network)
            changed = {
                n
                for n, net in gradients.items()
                if any((a != b).any() for a, b in zip(before[n], net.parameters(), strict=True))
            }
            self.updates.append((network, with_gradient, changed))

        module.step_network = update


@pytest.mark.parametrize("name", GANS)
@pytest.mark.parametrize(("n_critic", "accumulate"), [(1, 1), (3, 1), (2, 2)])
def test_counts_generator_iterations_and_trains_only_whose_turn_it_is(
    tiny_gan, random_images, fit, name, n_critic, accumulate
):
    module = tiny_gan(name, n_critic=n_critic, accumulate_gradients=accumulate)
    recorded = Recorded(module)
    trainer = fit(module, random_images(batch_size=4), max_steps=4)  # past the first epoch where n_critic is large
    assert trainer.global_step == 4
    turn = [*module.discriminator_names] * n_critic + ["generator"]
    assert [network for network, _, _ in recorded.updates] == turn * 4
    for network, with_gradient, changed in recorded.updates:
        others = set(module.discriminator_names) - {network} if network != "generator" else set()
        assert with_gradient - others == {network}
        assert changed == {network}
    assert all(parameter.requires_grad for parameter in module.parameters())


def reference_steps(module, images, num):
    """The same training in the plainest way: one network after the other, nothing shared, nothing frozen."""
    rate, losses = 0.1, []
    generator, discriminator = module.generator, module.discriminator
    for iteration in range(num):
        for update, real in enumerate(images[iteration].chunk(module.n_critic)):
            noise = Noise(torch.Generator(), (module.seed, "discriminator", iteration, update))
            latents = noise.normal("latents", len(real), module.latent_dim)
            loss = (
                functional.softplus(-discriminator(real)).mean()
                + functional.softplus(discriminator(generator(latents).detach())).mean()
            )
            descend(discriminator, loss, rate)
        if not module.reuses_fake:
            latents = Noise(torch.Generator(), (module.seed, "generator", iteration)).normal(
                "latents", len(real), module.latent_dim
            )
        loss = functional.softplus(-discriminator(generator(latents))).mean()
        descend(generator, loss, rate)
        losses.append(loss.item())
    return losses


def descend(network, loss, rate):
    parameters = list(network.parameters())
    with torch.no_grad():
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter -= rate * gradient


@pytest.mark.parametrize("n_critic", [1, 2])
@pytest.mark.parametrize("make", ["dcgan", "linear"])
def test_equals_a_plain_loop(tiny_gan, random_images, fit, n_critic, make):
    make_module = linear_gan if make == "linear" else lambda **settings: tiny_gan("dcgan", **PLAIN, **settings)
    module, plain = (make_module(n_critic=n_critic, channels_last=False, seed=3) for _ in range(2))
    data = random_images(batch_size=8)
    fit(module, data, max_steps=3)
    images = [data.dataset.images[step].float() / 127.5 - 1 for step in StepSampler(48, 8, n_critic, 0, 1, 0)]
    reference_steps(plain, images, 3)
    for (name, ours), (_, theirs) in zip(module.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


def test_accumulated_microbatches_equal_the_full_batch(random_images, fit):
    full, microbatches = linear_gan(), linear_gan(accumulate_gradients=2)
    fit(full, random_images(batch_size=8), max_steps=3)
    fit(microbatches, random_images(batch_size=4), max_steps=3)
    torch.testing.assert_close(full.state_dict(), microbatches.state_dict(), rtol=1e-5, atol=1e-6)


class NoWaiting(TorchDispatchMode):
    """Fails where a value is asked for on the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(function), "the step waits for the device"
        return function(*args, **(kwargs or {}))


def test_a_loader_of_pairs_or_images_works(random_images, fit, tiny_gan):
    images = torch.rand(16, 1, 16, 16) * 2 - 1
    for dataset in (torch.utils.data.TensorDataset(images, torch.zeros(16)), torch.utils.data.TensorDataset(images)):
        module = tiny_gan()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
        trainer = Trainer(max_epochs=1, enable_model_summary=False, **quiet)
        trainer.fit(module, torch.utils.data.DataLoader(dataset, batch_size=8))
        assert trainer.global_step == 2


def test_batches_are_named_scaled_and_split():
    pixels = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).reshape(4, 1, 1, 1)
    batch = prepare_batch((pixels, torch.arange(4)), channels_last=True)
    torch.testing.assert_close(batch["image"].flatten(), torch.tensor([-1.0, -0.6, 1.0, -0.2]))
    microbatches = split_batch(batch, 2)
    assert [microbatch["label"].tolist() for microbatch in microbatches] == [[0, 1], [2, 3]]
    with pytest.raises(RefusedInput, match="4 images cannot be split into 3 equal pieces"):
        split_batch(batch, 3)
    assert prepare_batch(pixels, False).keys() == {"image"}
    colours = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    assert prepare_batch(colours, True)["image"].is_contiguous(memory_format=torch.channels_last)
    assert prepare_batch(colours, False)["image"].is_contiguous()
    floats = torch.rand(2, 3, 4, 4) * 2 - 1
    assert torch.equal(prepare_batch({"image": floats}, True)["image"], floats), "only uint8 is scaled"
    assert (colours == 0).all(), "the loader's own images stay"


def test_networks_are_built_once_by_the_constructor_from_the_module_s_own_seed(tiny_gan, random_images, fit):
    torch.manual_seed(1)
    first = tiny_gan(seed=5)
    assert [name for name, _ in first.named_children()] == ["generator", "discriminator"]
    weight = first.generator.layers[0].weight
    assert first.generator.layers[0].weight is weight
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = tiny_gan(seed=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(weight, tiny_gan(seed=6).generator.layers[0].weight)
    assert sum(parameter.numel() for parameter in tiny_gan().parameters()) > 0
    assert tiny_gan().double().generator.layers[0].weight.dtype == torch.float64
    module, built = tiny_gan(), []
    module.configure_networks = lambda: built.append(1)
    fit(module, random_images(), max_steps=1)
    assert not built


def test_a_constructor_may_set_what_its_networks_need_after_the_one_of_its_base():
    class Wide(LinearGAN):
        def __init__(self, width: int, **kwargs):
            super().__init__(**kwargs)
            self.width = width

        def configure_networks(self):
            return super().configure_networks() | {"discriminator": nn.Linear(1, self.width)}

    module = Wide(7, image_size=16)
    assert module.discriminator.out_features == 7
    assert (module.hparams["width"], module.hparams["image_size"]) == (7, 16)
    assert list(inspect.signature(Wide).parameters) == ["width", "kwargs"], "as notebooks and parsers show it"
    with torch.device("meta"):
        assert Wide(7).generator[0].weight.is_meta


@pytest.mark.parametrize("name", GANS)
def test_state_dict_keys_are_the_plain_network_names(tiny_gan, name):
    module = tiny_gan(name)
    module.start_average()
    assert {key.partition(".")[0] for key in module.state_dict()} == set(module.network_names)


@pytest.mark.parametrize("bound", [1e-3, 0.05, 1e6])
def test_clipping_is_that_of_torch_on_each_network_in_each_update(random_images, fit, bound):
    module, steps = linear_gan(clip_gradients=bound, n_critic=2), []
    original, step_network = module.on_before_optimizer_step, module.step_network

    def step(network):
        parameters = list(module.get_submodule(network).parameters())
        before = torch.cat([parameter.detach().flatten() for parameter in parameters])
        step_network(network)
        moved = torch.cat([parameter.detach().flatten() for parameter in parameters]) - before
        assert moved.norm() <= 0.1 * bound * (1 + 1e-2), "the learning rate times the bound"

    def clip(optimizer):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        for copied, parameter in zip(copies, parameters, strict=True):
            copied.grad = parameter.grad.clone()
        before = torch.nn.utils.clip_grad_norm_(copies, bound)
        original(optimizer)
        after = torch.cat([parameter.grad.flatten() for parameter in parameters]).norm()
        assert after <= bound * (1 + 1e-5)
        for copied, parameter in zip(copies, parameters, strict=True):
            torch.testing.assert_close(parameter.grad, copied.grad, rtol=1e-6, atol=0)
        steps.append((before > bound).item())

    module.on_before_optimizer_step, module.step_network = clip, step
    fit(module, random_images(), max_steps=2)
    assert len(steps) == 2 * (2 + 1)
    assert any(steps) == (bound < 1)


def test_without_a_bound_no_gradient_is_touched(random_images, fit, monkeypatch):
    def forbidden(*_):
        raise AssertionError("clipped")

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", forbidden)
    fit(linear_gan(), random_images(), max_steps=1)


def test_r1_enters_the_training_in_its_iterations_with_its_weight(random_images, fit):
    """Against the plain loop with the penalty written out: gamma / 2 E|grad D|^2, times r1_every, at 0 and 2."""
    module, plain = (linear_gan(r1_gamma=0.7, r1_every=2, channels_last=False) for _ in range(2))
    data = random_images(batch_size=8)
    fit(module, data, max_steps=4)
    images = [data.dataset.images[step].float() / 127.5 - 1 for step in list(data._sampler())[:4]]
    for iteration, real in enumerate(images):
        latents = Noise(torch.Generator(), (0, "discriminator", iteration, 0)).normal("latents", 8, 6)
        real = real.requires_grad_()
        losses = plain.discriminator_losses(real, plain.generator(latents).detach(), {})["discriminator"]
        if iteration in (0, 2):
            (slope,) = torch.autograd.grad(plain.discriminator(real).sum(), real, create_graph=True)
            losses = losses + 2 * 0.7 / 2 * slope.square().sum((1, 2, 3)).mean()
        descend(plain.discriminator, losses, 0.1)
        latents = Noise(torch.Generator(), (0, "generator", iteration)).normal("latents", 8, 6)
        descend(plain.generator, plain.generator_loss(plain.generator(latents), {}), 0.1)
    torch.testing.assert_close(module.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


def test_penalty_and_schedule_and_clipping_hold_with_accumulated_microbatches(random_images, fit):
    settings = {"r1_gamma": 0.7, "clip_gradients": 0.05, "generator_optimizer": SGD(0.1, schedule=Linear())}
    full = linear_gan(n_critic=2, **settings)
    microbatches = linear_gan(n_critic=2, accumulate_gradients=2, **settings)
    losses = []
    for module, batch_size in ((full, 8), (microbatches, 4)):
        trainer = fit(module, random_images(batch_size=batch_size), max_steps=3)
        losses.append({name: value.item() for name, value in trainer.callback_metrics.items()})
    torch.testing.assert_close(full.state_dict(), microbatches.state_dict(), rtol=1e-5, atol=1e-6)
    assert set(losses[0]) == {"loss/generator", "loss/discriminator"}
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_logged_losses_are_those_of_the_last_updates_without_a_graph(random_images, fit):
    module, logged = linear_gan(channels_last=False, n_critic=2), []
    module.log_dict = lambda values, **_: logged.append(values)
    data = random_images(batch_size=8)
    reader = LambdaCallback(on_train_batch_end=lambda *_: None)  # may read the losses of every iteration
    fit(module, data, max_steps=3, callbacks=[reader])
    plain = linear_gan(channels_last=False, n_critic=2)
    images = [data.dataset.images[step].float() / 127.5 - 1 for step in StepSampler(48, 8, 2, 0, 1, 0)]
    expected = reference_steps(plain, images, 3)
    assert [values["loss/generator"].item() for values in logged] == pytest.approx(expected, rel=1e-5)
    assert not any(value.requires_grad for values in logged for value in values.values())


@pytest.mark.parametrize(
    ("network", "rates"),
    [
        ("generator", [0.1, 0.1, 1.0, 0.1, 0.1, 0.75, 0.1, 0.1, 0.5, 0.1, 0.1, 0.25]),
        ("discriminator", [1.0, 1.0, 0.1, 0.75, 0.75, 0.1, 0.5, 0.5, 0.1, 0.25, 0.25, 0.1]),
    ],
)
def test_each_network_follows_its_own_schedule_over_generator_iterations(random_images, fit, network, rates):
    module, found = linear_gan(n_critic=2, **{f"{network}_optimizer": SGD(1.0, schedule=Linear())}), []
    module.on_before_optimizer_step = lambda optimizer: found.append(optimizer.param_groups[0]["lr"])
    fit(module, random_images(batch_size=4), max_steps=4)
    assert found == pytest.approx(rates)


def test_two_ranks_draw_the_halves_of_what_one_draws(random_images, fit):
    module = linear_gan()
    trainer = fit(module, random_images(), max_steps=1)
    images = torch.zeros(8, 1, 16, 16)
    full = module._microbatches({"image": images}, ("generator", 3))[0]["latents"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(trainer), "world_size", 2)
        halves = []
        for rank in (0, 1):
            patch.setattr(type(trainer), "global_rank", rank)
            halves.append(module._microbatches({"image": images[:4]}, ("generator", 3))[0]["latents"])
    assert torch.equal(torch.cat(halves), full)
    assert torch.equal(full, Noise(torch.Generator(), (0, "generator", 3)).normal("latents", 8, 6))


@pytest.mark.parametrize(
    "settings", [{}, {"n_critic": 2, "accumulate_gradients": 2, "clip_gradients": 1.0, "r1_gamma": 1.0}]
)
@pytest.mark.parametrize("name", GANS)
def test_no_step_waits_for_the_device(tiny_gan, random_images, fit, name, settings):
    plain = {"generator_optimizer": SGD(1e-3), "discriminator_optimizer": SGD(1e-3)}  # Adam on a CPU reads its counter
    module, called = tiny_gan(name, **plain, **settings), []
    original = module.training_step

    def step(data, batch_idx):
        with NoWaiting():
            original(data, batch_idx)
        called.append(batch_idx)

    module.training_step = step
    fit(module, random_images(batch_size=4), max_steps=2)
    assert len(called) == 2


def test_what_waits_for_the_device_is_seen():
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        torch.ones(1).item()


def test_a_batch_that_cannot_be_split_ends_the_training(linear_data_of_7, random_images, fit):
    with pytest.raises(RefusedInput, match="7 images cannot be split into 2 equal pieces"):
        fit(linear_gan(n_critic=2), linear_data_of_7, max_steps=1)
    fit(linear_gan(), linear_data_of_7, max_steps=1)


@pytest.fixture
def linear_data_of_7():
    class Seven(LightningDataModule):
        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.zeros(7, 1, 16, 16), batch_size=7)

    return Seven()


def test_layers_that_draw_are_seeded_by_seed_iteration_and_rank(random_images, fit):
    """What dropout draws does not depend on what was drawn before the training, nor on a resume in between."""

    class Drawing(LinearGAN):
        def discriminator_losses(self, real, fake, batch):
            self.drawn.append(torch.rand(3))
            return super().discriminator_losses(real, fake, batch)

    module = Drawing(image_size=16, channels=1, latent_dim=6, seed=5, **PLAIN)
    module.drawn = []
    fit(module, random_images(), max_steps=3)
    for iteration, drawn in enumerate(module.drawn):
        expected = torch.rand(3, generator=torch.Generator().manual_seed(mix(5, iteration, 0)))
        assert torch.equal(drawn, expected)


def test_the_generator_s_update_goes_with_the_last_discriminator_update(random_images, fit):
    """A conditional GAN reads the batch: the generator's is that of the last update, with latents of its own."""

    class Reading(LinearGAN):
        def discriminator_losses(self, real, fake, batch):
            self.read.append(("discriminator", batch["label"], batch["latents"]))
            return super().discriminator_losses(real, fake, batch)

        def generator_loss(self, fake, batch):
            self.read.append(("generator", batch["label"], batch["latents"]))
            return super().generator_loss(fake, batch)

    module = Reading(image_size=16, channels=1, latent_dim=6, n_critic=2, **PLAIN)
    module.read = []
    fit(module, random_images(), max_steps=1)
    (_, first, _), (_, last, latents), (name, labels, own) = module.read
    assert name == "generator"
    assert torch.equal(labels, last)
    assert not torch.equal(labels, first)
    assert not torch.equal(latents, own)


@pytest.mark.parametrize("n_critic", [1, 2])
def test_fake_images_that_serve_both_updates_are_made_once(tiny_gan, random_images, fit, n_critic):
    module, made = tiny_gan("dcgan", n_critic=n_critic), []
    module.generator.register_forward_hook(lambda network, inputs, images: made.append(images.requires_grad))
    fit(module, random_images(), max_steps=2)
    assert made == ([False] * (n_critic - 1) + [True]) * 2


def test_the_memory_layout_changes_no_number(tiny_gan, random_images, fit):
    plain, last = (tiny_gan(channels=3, channels_last=flag, **PLAIN) for flag in (False, True))
    for module in (plain, last):
        fit(module, random_images(channels=3), max_steps=2)
    assert last.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain.state_dict(), last.state_dict(), rtol=1e-4, atol=1e-5)


def test_networks_under_other_names_are_a_programming_error():
    class Misnamed(LinearGAN):
        def configure_networks(self):
            return {"generator": nn.Identity(), "critic": nn.Identity()}

    with pytest.raises(
        TypeError, match=r"returned \('generator', 'critic'\), expected \('generator', 'discriminator'\)"
    ):
        Misnamed()


@pytest.mark.parametrize("compiles", [False, True])
def test_compiles_every_network_in_place_only_where_asked(tiny_gan, monkeypatch, compiles):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda network: compiled.append(network))
    module = tiny_gan(compile=compiles)
    keys = set(module.state_dict())
    assert compiled == [getattr(module, name) for name in module.network_names] * compiles
    assert keys == set(tiny_gan().state_dict())
