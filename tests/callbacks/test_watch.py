"""Lines about the health of tiny rigged trainings, whose looks have values that are known."""

import logging

import pytest
import torch
from torch import nn

from lit_gans.callbacks import PairedMetrics, Watch
from lit_gans.callbacks import watch as module_of_watch
from lit_gans.data.base import ImageData
from lit_gans.training.optim import OptimizerConfig

SPEED = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=1e-12))


class Brightness(nn.Module):
    """A discriminator that classifies bright images as real."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, images, *_):
        return self.weight * images.flatten(1).mean(1)


class Shades(nn.Module):
    """A generator of dark images of one shade each."""

    def __init__(self, spread):
        super().__init__()
        self.shade, self.spread = nn.Parameter(torch.tensor(-0.5)), spread

    def forward(self, latents, *_):
        shades = (self.shade + self.spread * latents[:, :1].tanh()).clamp(-0.9, -0.1)
        return shades[:, :, None, None].expand(-1, 1, 16, 16)


class Shown(ImageData):
    """Images that are brighter than gray, and some that are darker, all in one step."""

    num_classes = 2

    def __init__(self, wrong=0):
        super().__init__(image_size=16, batch_size=64)
        images = torch.randint(130, 256, (64, 1, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        images[:wrong] -= 130
        self.images = images

    def load(self):
        return self.images, torch.arange(64) % 2


@pytest.fixture
def rigged(tiny_gan):
    """Makes a GAN whose networks are `Brightness` and `Shades`: the discriminator is right about bright data."""

    def make(name="dcgan", spread=0.3, **settings):
        module = tiny_gan(name, **{**SPEED, "channels_last": False, **settings})
        module.generator = Shades(spread)
        for network in module.discriminator_names:
            setattr(module, network, Brightness())
        return module

    return make


@pytest.fixture
def lines(fit, caplog):
    """Trains with a watch at every iteration and returns its lines."""

    def run(module, data, max_steps, *others, patience=3, **settings):
        watch = Watch(every_n_steps=1, patience=patience, **settings)
        caplog.clear()
        with caplog.at_level(logging.INFO, "lit_gans.callbacks.watch"):
            fit(module, data, max_steps, callbacks=[*others, watch])
        records = [record for record in caplog.records if record.name == "lit_gans.callbacks.watch"]
        run.looks, run.levels = watch.looks, [record.levelname for record in records]
        return [record.getMessage() for record in records]

    return run


def test_a_discriminator_that_wins_is_logged_once_and_immediately(rigged, lines):
    (line,) = lines(rigged(), Shown(), 9)
    assert line.startswith("health at iteration 4: discriminator wins: the discriminator has classified more")
    assert lines.levels == ["WARNING"]
    assert {look.accuracy["discriminator"] for look in lines.looks} == {1.0}


def test_a_patience_of_more_checks_than_are_kept_ends(rigged, lines, monkeypatch):
    monkeypatch.setattr(module_of_watch, "_KEPT_LOOKS", 2)
    (line,) = lines(rigged(), Shown(), 9)
    assert line.startswith("health at iteration 4: discriminator wins")
    assert [look.iteration for look in lines.looks] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("wrong", [1, 32])
def test_accuracy_is_that_of_the_worse_kind(rigged, lines, wrong):
    (line,) = lines(rigged(), Shown(wrong), 5)
    assert "stalled" in line, "nothing is trained here"
    assert {look.accuracy["discriminator"] for look in lines.looks} == {1 - wrong / 64}


def test_of_two_discriminators_the_one_that_is_right_is_named(rigged, lines):
    module = rigged("d3gan")
    with torch.no_grad():
        module.discriminator_1.weight.neg_()
    (line,) = lines(module, Shown(), 5)
    assert "the discriminator_2 has classified more" in line


def test_a_critic_has_no_accuracy(rigged, lines):
    lines(rigged("wgan_gp", n_critic=1), Shown(), 2)
    assert {tuple(look.accuracy) for look in lines.looks} == {()}


class Moves:
    """Replaces `generate`: real images, some of them of one shade, that are brighter in every second iteration."""

    def __init__(self, module, data, alike=(), step=0.1):
        self.module, self.real, self.alike, self.step = module, data.images.float() / 127.5 - 1, alike, step

    def __call__(self, generator, batch):
        latents = batch["latents"]
        images = self.real[latents.abs().sum(1).argsort()[: len(latents)]].clone()
        rows = self.alike if isinstance(self.alike, slice) else torch.isin(batch["label"], torch.tensor(self.alike))
        images[rows] = 0.0
        return 0.5 * images + self.step * (self.module.trainer.global_step % 2) + 0 * generator.shade


def test_samples_that_look_like_each_other_have_collapsed(rigged, lines):
    module, data = rigged(), Shown(32)
    module.generate = Moves(module, data, slice(20))
    (line,) = lines(module, data, 5)
    assert line.startswith("health at iteration 4: collapsing: 31% of the samples look like another sample: ")
    assert [look.twins for look in lines.looks] == [20 / 64] * 5


@pytest.mark.parametrize("collapsed", [(0, 1), (1,), ()])
def test_samples_are_compared_with_those_of_their_class(rigged, lines, collapsed):
    module, data = rigged(num_classes=2), Shown(32)
    module.generate = Moves(module, data, collapsed)
    found = lines(module, data, 5)
    assert len(found) == bool(collapsed)
    for line in found:
        assert f"in class {', '.join(map(str, collapsed))}: " in line
    assert {look.classes for look in lines.looks} == {collapsed}


def test_change_is_that_of_the_same_latents_from_look_to_look(rigged, lines):
    module, data = rigged(), Shown(32)
    module.generate = Moves(module, data)
    lines(module, data, 3)
    unit = torch.pdist((data.images / 255).flatten(1)).mean().item()
    assert [look.change for look in lines.looks] == [None, *[pytest.approx(0.05 * 16 / unit, rel=1e-3)] * 2]


def test_a_line_is_due_every_few_minutes_and_then_looks_for_copies(rigged, lines, monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            self.now += 1.0  # once for each look, once for each line
            return self.now

    monkeypatch.setattr(module_of_watch.time, "monotonic", Clock())
    module, data = rigged(), Shown(32)
    module.generate = Moves(module, data)
    found = lines(module, data, 9, patience=100, minutes=4 / 60)
    assert [line.partition(":")[0] for line in found] == ["health at iteration 4", "health at iteration 8"]
    assert lines.levels == ["INFO"] * 2
    assert [look.copies is not None for look in lines.looks] == [step in (4, 8) for step in range(1, 10)]


def test_copies_of_the_training_images_are_memorized(rigged, lines):
    module, data = rigged(), Shown(32)
    module.generate = lambda generator, batch: data.images.float() / 127.5 - 1 + 0 * generator.shade
    (*_, line) = lines(module, data, 6, minutes=1e-9)
    assert line.startswith("health at iteration 6: memorizing: 100% of the samples are copies of training images")


def test_translations_vary_as_much_as_their_inputs(tiny_gan, random_images, lines):
    lines(tiny_gan("pix2pix"), random_images(), 3, minutes=1e-9)
    assert {(look.twins, look.copies) for look in lines.looks} == {(0.0, None)}


@pytest.mark.parametrize("name", ["pix2pix", "dcgan"])
def test_a_batch_of_one_image_has_no_distances_and_a_line_says_so_once(tiny_gan, random_images, lines, name):
    (first, *others) = lines(tiny_gan(name), random_images(batch_size=1), 6, minutes=1e-9)
    assert first.startswith("health at iteration 1: the batch has no two different images, so distances between")
    sentence = "learning: no distance to the real images, because the batch has no two different real images"
    early = [f"health at iteration {step}: {sentence}, too early to say more" for step in (1, 2, 3)]
    assert others == [*early, *(f"health at iteration {step}: {sentence}" for step in (4, 5, 6))]
    assert lines.levels == ["INFO"] * 7
    twins = 0.0 if name == "pix2pix" else None
    assert {(look.distance, look.change, look.twins) for look in lines.looks} == {(None, None, twins)}
    assert all(len(look.accuracy) == 1 for look in lines.looks), "which one image has"


def test_equal_images_have_no_distances(rigged, lines):
    data = Shown()
    data.images[:] = 200
    lines(rigged(), data, 2)
    assert [(look.distance, look.change) for look in lines.looks] == [(None, None)] * 2


def test_an_incomplete_last_batch_of_one_image_is_left_out_alone(tiny_gan, fit):
    watch = Watch(every_n_steps=1)
    loader = torch.utils.data.DataLoader(list(torch.rand(5, 1, 16, 16)), batch_size=2)
    fit(tiny_gan(), loader, 3, callbacks=[watch])
    assert [look.distance is None for look in watch.looks] == [False, False, True]


def test_a_metric_that_stays_as_it_is_has_stalled(tiny_gan, random_images, lines):
    metrics = PairedMetrics(every_n_steps=1, num_samples=4)
    metrics.measure = lambda trainer, module: {"metric/l1": max(0.5, 1.0 - 0.1 * trainer.global_step)}
    module = tiny_gan("pix2pix")
    generate = module.generate

    def brighter(network, batch):
        return 0 * generate(network, batch) + (0.8 + 0.2 * (module.trainer.global_step % 2)) * batch["input"]

    module.generate = brighter
    found = lines(module, random_images(), 12, metrics, patience=2)
    assert found == [line for line in found if line.startswith("health at iteration 10: stalled: the last 5")]
    assert len(found) == 1, "the best value is that of iteration 5"


def test_a_resumed_watch_continues_from_its_checks(rigged, lines, fit):
    first = Watch(every_n_steps=1, patience=3)
    fit(rigged(), Shown(), 3, callbacks=[first])
    again = Watch(every_n_steps=1, patience=3)
    again.load_state_dict(first.state_dict())
    assert again.looks == first.looks
    assert len(again.looks) == 3


@pytest.mark.filterwarnings("ignore:Found .* in eval mode")
@pytest.mark.parametrize("name", ["sngan", "pix2pix", "cyclegan"])
def test_a_training_with_a_watch_is_bitwise_the_one_without(tiny_gan, random_images, fit, name):
    found = []
    for callbacks in ([Watch(every_n_steps=1)], []):
        torch.manual_seed(11)
        module = tiny_gan(name)
        for layer in list(module.modules())[3::4]:
            layer.training = False
        fit(module, random_images(batch_size=4), max_steps=3, callbacks=callbacks)
        modes = {path: layer.training for path, layer in module.named_modules()}
        found.append((module.state_dict(), modes, torch.get_rng_state()))
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert set(modes.values()) == {True, False}


def test_pix2pix_on_a_plain_loader_is_watched(tiny_gan, fit):
    pairs = [{"input": picture, "image": image} for picture, image in torch.rand(8, 2, 1, 16, 16)]
    watch = Watch(every_n_steps=1)
    fit(tiny_gan("pix2pix"), torch.utils.data.DataLoader(pairs, batch_size=4), 2, callbacks=[watch])
    assert len(watch.looks) == 2
