"""Warnings are errors under test: where none is expected, none comes."""

import warnings

import pytest
import torch
from torch import nn

from lit_gans.callbacks import Watch
from lit_gans.callbacks.watch import _diversity_of_classes
from lit_gans.data.base import ImageData
from lit_gans.training.optim import Optimizer

STILL = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), Optimizer("SGD", lr=1e-12))


class Brightness(nn.Module):
    """A discriminator that classifies bright images as real."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, images):
        return self.weight * images.flatten(1).mean(1)


class Shades(nn.Module):
    """A generator of dark images of one shade each."""

    def __init__(self, spread):
        super().__init__()
        self.shade, self.spread = nn.Parameter(torch.tensor(-0.5)), spread

    def forward(self, latents):
        shades = (self.shade + self.spread * latents[:, :1].tanh()).clamp(-0.9, -0.1)
        return shades[:, :, None, None].expand(-1, 1, 16, 16)


class Shown(ImageData):
    """The given images, all in one step."""

    def __init__(self, images):
        super().__init__(image_size=16, batch_size=len(images))
        self.images = images

    def load(self):
        return self.images, torch.zeros(len(self.images), dtype=torch.long)


def bright(num=64, wrong=0):
    """Random images brighter than gray, and some that are darker."""
    images = torch.randint(130, 256, (num, 1, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images[:wrong] -= 130
    return Shown(images)


@pytest.fixture
def rigged(tiny_gan):
    """Makes a GAN whose networks are `Brightness` and `Shades`: the discriminator is right about bright data."""

    def make(name="dcgan", spread=0.3, **settings):
        module = tiny_gan(name, **{**STILL, "channels_last": False, **settings})
        module.generator = Shades(spread)
        for network in module.discriminator_names:
            setattr(module, network, Brightness())
        return module

    return make


@pytest.fixture
def warned(fit):
    """Trains with a watch at every iteration and returns what it warned about."""

    def run(module, data, max_steps, patience=3, **settings):
        watch = Watch(every_n_steps=1, patience=patience, **settings)
        with pytest.warns(UserWarning, match="^iterations ") as caught:
            fit(module, data, max_steps=max_steps, callbacks=[watch])
        return [str(warning.message) for warning in caught if str(warning.message).startswith("iterations")]

    return run


def test_a_discriminator_that_is_right_for_the_patience_warns_once_and_by_name(rigged, warned):
    (sentence,) = warned(rigged(), bright(), max_steps=12)
    assert sentence.startswith("iterations 1 to 4: the discriminator has been right about more than 99 % of the images")
    assert "r1_gamma" in sentence


def test_patience_is_counted_in_iterations_at_any_distance_of_looks(rigged, fit):
    with pytest.warns(UserWarning, match="iterations 2 to 6: the discriminator"):
        fit(rigged(), bright(), max_steps=6, callbacks=[Watch(every_n_steps=2, patience=3)])


@pytest.mark.parametrize("dips", [(3,), (1, 4)])
def test_no_warning_where_accuracy_dips(rigged, fit, warned, dips):
    module = rigged()
    original = module.classified_as_real
    module.classified_as_real = lambda name, scores: original(name, scores) & (module.trainer.global_step not in dips)
    last = dips[-1] + 3  # patience 3 begins anew after a dip
    fit(module, bright(), max_steps=last, callbacks=[Watch(every_n_steps=1, patience=3)])
    (sentence,) = warned(module, bright(), max_steps=last + 1)
    assert sentence.startswith(f"iterations {dips[-1] + 1} to {last + 1}:")


@pytest.mark.parametrize("wrong", [1, 32, 64])
def test_no_warning_where_one_of_64_real_images_is_classified_as_generated(rigged, fit, wrong):
    fit(rigged(), bright(wrong=wrong), max_steps=4, callbacks=[Watch(every_n_steps=1, patience=1)])


def test_no_warning_where_a_generated_image_is_classified_as_real(rigged, fit):
    module = rigged()
    paint = module.generate

    def generate(generator, batch):
        images = paint(generator, batch).clone()
        images[0] = 1.0
        return images

    module.generate = generate
    fit(module, bright(), max_steps=4, callbacks=[Watch(every_n_steps=1, patience=1)])


def test_of_two_discriminators_the_one_that_is_right_is_named(rigged, warned):
    module = rigged("d3gan")
    with torch.no_grad():
        module.discriminator_1.weight.neg_()
    (sentence,) = warned(module, bright(), max_steps=5)
    assert "the discriminator_2 has been right" in sentence


def test_a_critic_never_wins_as_its_scores_have_no_threshold(rigged, fit):
    module = rigged("wgan_gp", n_critic=1)
    fit(module, bright(), max_steps=6, callbacks=[Watch(every_n_steps=1, patience=1)])


def test_samples_of_one_shade_have_collapsed(rigged, warned):
    sentences = warned(rigged(spread=0.0), bright(wrong=32), max_steps=8)
    assert len(sentences) == 1
    assert sentences[0].startswith("iterations 1 to 4: samples differ from each other by 0.0% of what real images do")


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_diversity_is_the_mean_distance_over_that_of_the_real_images(rigged, warned, fit, share):
    module, data = rigged(), bright(wrong=32)
    real = data.images.float() / 127.5 - 1
    module.generate = lambda generator, batch: share * real[: len(batch["latents"])] + 0 * generator.shade
    fit(module, data, max_steps=3, callbacks=[Watch(every_n_steps=1, patience=1, min_diversity=share - 0.01)])
    (sentence,) = warned(module, data, max_steps=4, min_diversity=share + 0.01)
    assert f"samples differ from each other by {share:.1%} of" in sentence


class Labeled(Shown):
    """Random images of two classes."""

    num_classes = 2

    def load(self):
        return self.images, torch.arange(len(self.images)) % 2


@pytest.mark.parametrize("collapsed", [(0, 1), (1,), ()])
def test_samples_of_one_class_are_compared_with_real_images_of_that_class(rigged, fit, collapsed):
    """The classes differ by far, so that all samples together look diverse."""
    module, data = rigged(num_classes=2), Labeled(bright().images)
    real, plain = data.images.float() / 127.5 - 1, {name: getattr(module, name) for name in module.network_names}

    def generate(generator, batch):
        labels = batch["label"][:, None, None, None]
        varied = torch.isin(labels, torch.tensor([label for label in (0, 1) if label not in collapsed]))
        return torch.where(varied, 0.2 * real[: len(labels)], 2.0 * labels - 1) + 0 * generator.shade

    module.generate = generate
    for name in module.discriminator_names:
        plain[name].forward = lambda images, labels, network=plain[name]: network.weight * images.flatten(1).mean(1) * 0
    watch = Watch(every_n_steps=1, patience=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(module, data, max_steps=8, callbacks=[watch])
    sentences = [str(warning.message) for warning in caught if str(warning.message).startswith("iterations")]
    assert len(sentences) == bool(collapsed)
    for sentence in sentences:
        assert sentence.startswith(
            "iterations 1 to 4: samples of the same class differ from each other by less than 10%"
        )
        assert f"in class {', '.join(map(str, collapsed))}: " in sentence


def test_the_diversity_of_a_class_is_its_mean_distance_over_that_of_its_real_images():
    real, fake, labels = torch.randn(9, 1, 4, 4), torch.randn(9, 1, 4, 4), torch.tensor([0, 3, 3, 0, 5, 3, 0, 7, 7])
    diversity = _diversity_of_classes(real, fake, labels)
    assert set(diversity) == {0, 3, 7}, "class 5 has one image"
    for label, found in diversity.items():
        expected = [torch.pdist(images[labels == label].flatten(1)).mean() for images in (fake, real)]
        assert found == pytest.approx((expected[0] / expected[1]).item(), rel=1e-5)


def test_a_collapsed_critic_model_warns_too_and_translations_never(rigged, warned, tiny_gan, random_images, fit):
    (sentence,) = warned(rigged("wgan_gp", spread=0.0, n_critic=1), bright(), max_steps=4)
    assert "samples differ" in sentence
    fit(
        tiny_gan("pix2pix", **STILL),
        random_images(),
        3,
        callbacks=[Watch(every_n_steps=1, patience=1, min_diversity=0.9)],
    )


def test_a_resumed_watch_goes_on_counting_and_does_not_warn_again(rigged, fit):
    watch = Watch(every_n_steps=1, patience=3)
    fit(rigged(), bright(), max_steps=2, callbacks=[watch])
    assert watch.state_dict() == {"failing_since": {"discriminator": 1}, "warned": []}
    again = Watch(every_n_steps=1, patience=3)
    again.load_state_dict(watch.state_dict())
    with pytest.warns(UserWarning, match="iterations 1 to 4: the discriminator"):
        again._judge(4, {"discriminator": True}, "the discriminator has been right")
    third = Watch(every_n_steps=1, patience=3)
    third.load_state_dict(again.state_dict())
    third._judge(9, {"discriminator": True}, "the discriminator has been right")
