"""Networks of a GAN: built once, under their names, compiled and laid out as asked."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import lit_gans
from lit_gans import RefusedInput
from lit_gans.checkpoints.format import joined, read_checkpoint, split
from lit_gans.training.augmentation import Adaptive
from lit_gans.training.module import AdversarialModule
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.resuming import changed_settings
from lit_gans.training.schedules import LinearSchedule
from tests.training.linear_gan import PLAIN, SMALL, LinearGAN, linear_gan


def test_networks_are_built_once_by_the_constructor_from_the_module_s_own_seed(tiny_gan, random_images, fit):
    torch.manual_seed(1)
    first = tiny_gan(seed=5)
    assert [name for name, _ in first.named_children()] == ["generator", "discriminator"]
    weight = first.generator.layers[0].weight
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = tiny_gan(seed=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(weight, tiny_gan(seed=6).generator.layers[0].weight)


def test_the_memory_layout_changes_no_number(tiny_gan, random_images, fit):
    plain, last = (tiny_gan(channels=3, channels_last=flag, **PLAIN) for flag in (False, True))
    for module in (plain, last):
        fit(module, random_images(channels=3), max_steps=2)
    assert last.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.discriminator.layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain.state_dict(), last.state_dict(), rtol=1e-4, atol=1e-5)


def test_networks_built_without_the_context_get_their_layout_before_the_training(random_images, fit):
    class Plain(LinearGAN):
        def __init__(self, **kwargs):
            AdversarialModule.__init__(self, **kwargs)
            self.generator = nn.Sequential(nn.Unflatten(1, (6, 1, 1)), nn.ConvTranspose2d(6, 1, 16))
            self.discriminator = nn.Sequential(nn.Conv2d(1, 2, 16), nn.Flatten(), nn.Linear(2, 1))

    module = Plain(image_size=16, channels=1, latent_dim=6)
    fit(module, random_images(), max_steps=1)
    assert module.generator[1].weight.is_contiguous(memory_format=torch.channels_last)


def test_numbers_of_any_kind_become_those_that_are_annotated(tiny_gan):
    given = {"r1_gamma": 1, "r2_gamma": "1e-4", "clip_gradients": np.float32(2), "label_smoothing": torch.tensor(0)}
    sizes = {"n_critic": np.int64(2), "latent_dim": "6", "image_size": torch.Size([16, 32])}
    module = tiny_gan("dcgan", **given, **sizes, generator_optimizer={"name": "SGD", "lr": 1})
    expected = {"r1_gamma": 1.0, "r2_gamma": 1e-4, "clip_gradients": 2.0, "label_smoothing": 0.0}
    expected |= {"n_critic": 2, "latent_dim": 6, "image_size": [16, 32]}
    found = {name: module.hparams[name] for name in expected}
    assert repr(found) == repr(expected), "what a checkpoint has"
    assert (module.r1_gamma, module.clip_gradients_to, module.image_size) == (1.0, 2.0, (16, 32))
    assert module.generator_optimizer == OptimizerConfig("SGD", lr=1.0)
    assert module.rebuilt().hparams == module.hparams


def test_whole_numbers_and_floats_are_the_same_settings(tiny_gan):
    whole = tiny_gan(r1_gamma=1, discriminator_optimizer=OptimizerConfig("Adam", betas=(0, 0.99)))
    floats = tiny_gan(r1_gamma=1.0, discriminator_optimizer=OptimizerConfig("Adam", betas=(0.0, 0.99)))
    saved = {"hyper_parameters": dict(floats.hparams) | {"r1_gamma": 1}}  # as older versions saved it
    assert changed_settings(whole, saved) == ""
    assert whole.hparams == floats.hparams


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"r1_gamma": True}, "r1_gamma=True must be a number"),
        ({"label_smoothing": "much"}, "label_smoothing='much' must be a number"),
        ({"latent_dim": 6.5}, "latent_dim=6.5 must be a whole number"),
        ({"image_size": True}, "image_size=True must be a whole number"),
        ({"share_scores": "false"}, "share_scores='false' must be true or false"),
        ({"generator_optimizer": "Adan"}, "torch.optim has no such optimizer; did you mean 'Adam'"),
    ],
)
def test_an_invalid_number_is_an_error_with_its_name(tiny_gan, given, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan("dcgan", **given)


def test_a_class_of_a_user_whose_annotations_exist_for_type_checkers_only_is_constructed():
    class Own(LinearGAN):
        def __init__(self, extra: "Nowhere" = None, weight: "float" = 1, **kwargs):  # noqa: F821
            super().__init__(**kwargs)
            self.extra, self.weight = extra, weight

    module = Own("kept", 2, image_size=16, channels=1, latent_dim=6)
    assert (module.extra, repr(module.weight)) == ("kept", "2.0")


class Percent(LinearGAN):
    """Changes an argument before it passes it on, takes a network, and one argument in place of another."""

    def __init__(self, percent=0.0, network=None, activation=nn.ReLU, **kwargs):
        percent = percent / 100
        super().__init__(r1_gamma=percent, **kwargs)
        self.weight = percent


def test_arguments_are_those_that_were_passed(fit, random_images, tmp_path):
    module = Percent(10, **SMALL)
    assert (module.hparams["percent"], module.weight) == (10.0, 0.1)
    assert "r1_gamma" not in module.hparams
    fit(module, random_images(), max_steps=1).save_checkpoint(tmp_path / "a.ckpt")
    loaded = lit_gans.load(tmp_path / "a.ckpt")
    assert (loaded.r1_gamma, loaded.hparams) == (0.1, module.hparams)


def test_a_value_without_a_name_is_refused():
    class Any(LinearGAN):
        def __init__(self, *layers, **kwargs):
            super().__init__(**kwargs)

    assert Any(**SMALL).latent_dim == 6
    with pytest.raises(RefusedInput, match=r"could not store \(3,\), which is passed as \*layers and has no name"):
        Any(3, **SMALL)


def test_a_network_as_an_argument_is_passed_again_when_the_checkpoint_is_loaded(fit, random_images, tmp_path):
    module, path = Percent(10, nn.Linear(1, 1), **SMALL), tmp_path / "a.ckpt"
    fit(module, random_images(), max_steps=1).save_checkpoint(path)
    fit(Percent(10, nn.Linear(1, 1), **SMALL), random_images(), max_steps=2, resume=path)
    with pytest.raises(RefusedInput, match=r"contain network, .* Percent.load_from_checkpoint\(PATH, network="):
        lit_gans.load(path)
    loaded = Percent.load_from_checkpoint(path, network=nn.Linear(1, 1))
    torch.testing.assert_close(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
    default = Percent(10, **SMALL)
    assert default.rebuilt().hparams == default.hparams
    with pytest.raises(RefusedInput, match="Percent cannot be built anew, because network cannot be stored"):
        module.rebuilt()
    config, tensors, _ = split(read_checkpoint(path))
    with pytest.raises(RefusedInput, match="does not contain network"):
        Percent.from_checkpoint(joined(config, tensors, {}))


def test_hyperparameters_that_a_subclass_saves_are_stored_as_plain_values(fit, random_images, tmp_path):
    class Saves(LinearGAN):
        def __init__(self, generator_optimizer=OptimizerConfig("SGD", lr=0.1), **kwargs):
            super().__init__(generator_optimizer=generator_optimizer, **kwargs)
            self.save_hyperparameters()

    fit(Saves(**SMALL), random_images(), max_steps=1).save_checkpoint(tmp_path / "a.ckpt")
    assert Saves.load_from_checkpoint(tmp_path / "a.ckpt").generator_optimizer == OptimizerConfig("SGD", lr=0.1)


@pytest.mark.parametrize("hook", ["setup", "on_before_optimizer_step", "on_save_checkpoint"])
def test_a_hook_that_loses_the_work_of_the_base_class_is_refused(hook):
    class Mixin:
        pass

    setattr(Mixin, hook, lambda self, given: None)
    with pytest.raises(RefusedInput, match=rf"Mixin.{hook} must call super\(\).{hook}\(given\)"):
        type("Own", (Mixin, LinearGAN), {})


def test_a_hook_that_calls_its_base_class_in_any_way_is_accepted():
    class Own(LinearGAN):
        def setup(self, stage):
            super().setup(stage)

        def on_train_start(self):
            [start() for start in (lambda: LinearGAN.on_train_start(self),)]

    Own(**SMALL)


class Mixin:
    def __init__(self, extra=1, **kwargs):
        super().__init__(n_critic=2, **kwargs)
        self.extra = extra


class Mixed(Mixin, LinearGAN):
    pass


def test_arguments_of_a_mixin_are_stored():
    module = Mixed(extra=5, **SMALL)
    assert module.hparams["extra"] == 5
    assert "n_critic" not in module.hparams
    assert (module.rebuilt().extra, module.rebuilt().n_critic) == (5, 2)


def test_a_decorator_of_the_user_may_take_an_argument_away():
    def quiet(constructor):
        @functools.wraps(constructor)
        def wrapper(self, *, verbose=False, **kwargs):
            constructor(self, **kwargs)

        return wrapper

    class Own(LinearGAN):
        @quiet
        def __init__(self, width=3, image_size=16, channels=1, latent_dim=6):
            super().__init__(image_size=image_size, channels=channels, latent_dim=latent_dim)

    module = Own(verbose=True, width=4)
    assert module.hparams["width"] == 4


def test_a_new_training_of_trained_networks_begins_with_no_images(fit, random_images, tmp_path):
    schedule = LinearSchedule(over=24, unit="images")
    module = linear_gan(
        augmentation=Adaptive(over=64), generator_optimizer=OptimizerConfig("SGD", lr=0.1, schedule=schedule)
    )
    module.discriminator[-1].bias.data.fill_(9.0)
    fit(module, random_images(batch_size=8), max_steps=4).save_checkpoint(tmp_path / "a.ckpt")
    assert (module.progress.images_seen, module.augmentations.state[0]) == (32, 0.5)
    for again in (module, LinearGAN.load_from_checkpoint(tmp_path / "a.ckpt")):
        before = again.generator[0].weight.clone()
        fit(again, random_images(batch_size=8), max_steps=1)
        assert (again.progress.images_seen, again.augmentations.state[0]) == (8, 0)
        assert not torch.equal(again.generator[0].weight, before)
