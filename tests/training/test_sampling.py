"""Samples of a module, and modules from checkpoints."""

import json

import numpy as np
import pytest
import torch

from lit_gans import AdversarialModule, ImageGAN, RefusedInput, load
from lit_gans.callbacks import EMA
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.models.dcgan import DCGAN
from lit_gans.models.sngan import SNGAN
from tests.gans import GANS


def test_samples_are_the_generator_s_images_in_0_1_and_change_nothing(tiny_gan):
    module = tiny_gan()
    before, state = {n: v.clone() for n, v in module.state_dict().items()}, torch.get_rng_state()
    images = module.sample(5, seed=2, batch_size=2)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)
    assert not torch.equal(images, module.sample(5, seed=3))
    with pytest.raises(RuntimeError):
        module.decode(torch.zeros(2, 99))
    assert module.generator.training, "the mode is restored"
    expected = (module.generator.eval()(module.latents(5, seed=2)).detach() + 1) / 2
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(module.sample(5, seed=2), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(images, expected, rtol=1e-6, atol=1e-6)
    assert not module.generator.training


@pytest.mark.parametrize("latent_dim", [1, 3, 16, 100])
def test_the_first_images_of_more_are_the_same(tiny_gan, latent_dim):
    module = tiny_gan(latent_dim=latent_dim)
    latents = module.latents(50, seed=7)
    for num in range(51):
        assert torch.equal(module.latents(num, seed=7), latents[:num])
    assert not torch.equal(module.latents(50, seed=8), latents)


def test_raw_and_averaged_weights(tiny_gan):
    module = tiny_gan()
    with pytest.raises(RefusedInput, match="holds no averaged weights"):
        module.sample(2, weights="ema")
    module.start_average()
    with torch.no_grad():
        for parameter in module.generator.parameters():
            parameter.add_(1)
    assert not torch.equal(module.sample(2), module.sample(2, weights="raw"))
    assert torch.equal(module.sample(2), module.sample(2, weights="ema"))


@pytest.mark.parametrize("name", GANS)
def test_a_checkpoint_holds_everything_and_loads_without_a_callback(tiny_gan, random_images, fit, tmp_path, name):
    module = tiny_gan(name, seed=4)
    trainer = fit(module, random_images(), max_steps=3, callbacks=[EMA()])
    path = tmp_path / "some.ckpt"
    trainer.save_checkpoint(path)
    checkpoint = read_checkpoint(path)
    assert checkpoint["generator_ema"]["format_version"] == 1
    assert {key.partition(".")[0] for key in checkpoint["state_dict"]} == {*module.network_names}
    json.dumps(checkpoint["hyper_parameters"])
    for loaded in (load(path), type(module).load_from_checkpoint(path, weights_only=True)):
        assert loaded.hparams == module.hparams
        torch.testing.assert_close(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
        inputs = module.sampling_inputs(4, 0, trainer.datamodule)
        for weights in ("ema", "raw"):
            assert torch.equal(loaded.decode(inputs, weights=weights), module.decode(inputs, weights=weights))
    assert not torch.equal(loaded.decode(inputs, weights="ema"), loaded.decode(inputs, weights="raw"))


def test_names_of_classes_are_in_the_checkpoint(tiny_gan, random_images, fit, tmp_path):
    data, module, path = random_images(), tiny_gan(num_classes=10), tmp_path / "some.ckpt"
    data.class_names = np.array([f"class {number}" for number in range(10)])
    fit(module, data, max_steps=1).save_checkpoint(path)
    assert load(path).class_names == module.class_names == tuple(data.class_names)
    fit(module, random_images(), max_steps=1)
    assert module.class_names == tuple(data.class_names), "data without names do not contradict"
    unconditional = tiny_gan()
    fit(unconditional, data, max_steps=1)
    assert unconditional.class_names == ()
    data.class_names = data.class_names[:9]
    with pytest.raises(RefusedInput, match="the data has 9 class_names, but 10 classes: name each class, or none"):
        fit(module, data, max_steps=1)


def test_resuming_without_the_ema_callback_drops_the_stale_average(tiny_gan, random_images, fit, tmp_path):
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[EMA()])
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    module = load(tmp_path / "some.ckpt")
    with pytest.warns(UserWarning, match="no EMA callback"):
        fit(module, random_images(), max_steps=1)
    assert module.averaged_generator is None


def test_other_architectures_and_formats_are_refused_and_other_settings_named(tiny_gan, random_images, fit, tmp_path):
    trainer = fit(tiny_gan(), random_images(), max_steps=1)
    path = tmp_path / "some.ckpt"
    trainer.save_checkpoint(path)
    with pytest.raises(RefusedInput, match=r"different architecture \(DCGAN; generator_width=4 there, 8 here\)"):
        tiny_gan(generator_width=8).on_load_checkpoint(read_checkpoint(path))
    others = {"latent_dim": 9, "n_critic": 2, "r1_gamma": 1.0, "seed": 5}
    with pytest.raises(RefusedInput, match=r"; 2 more\): generator\.\S+ is \(6, .* here\.$"):
        tiny_gan(generator_width=8, **others).on_load_checkpoint(read_checkpoint(path))
    with pytest.warns(UserWarning, match="different settings: r1_gamma=0.0 there, 1.0 here"):
        tiny_gan(r1_gamma=1.0).on_load_checkpoint(read_checkpoint(path))
    checkpoint = read_checkpoint(path)
    with pytest.raises(RefusedInput, match=r"architecture: it is of the class DCGAN, but this is D2GAN; use"):
        tiny_gan("d2gan").on_load_checkpoint(checkpoint)
    with pytest.raises(RefusedInput, match=r"of the class DCGAN, not SNGAN: use DCGAN.load_from_checkpoint, or lit"):
        SNGAN.load_from_checkpoint(path)

    class Base(DCGAN):
        def build_networks(self):
            raise NotImplementedError

    with pytest.raises(RefusedInput, match="of the class DCGAN, not Base: use DCGAN"):
        Base.load_from_checkpoint(path)
    with pytest.raises(TypeError, match="nothing"):
        DCGAN.load_from_checkpoint(path, nothing=1)
    checkpoint["lit_gans"]["format_version"] = 99
    with pytest.raises(RefusedInput, match="format 99"):
        tiny_gan().on_load_checkpoint(checkpoint)
    torch.save(checkpoint | {"lit_gans": {"format_version": 1, "class_path": "os.system"}}, path)
    with pytest.raises(RefusedInput, match=r"os\.system, which is neither imported here nor a registered GAN"):
        load(path)


def test_arguments_are_kept_where_a_subclass_fixes_some():
    class Fixed(SNGAN):
        def __init__(self, beta: float = 0.5, **kwargs):
            super().__init__(network="dcgan", latent_dim=7, **kwargs)

    module = Fixed(0.3, image_size=16, generator_width=4, discriminator_width=4, seed=3)
    assert not {"network", "latent_dim"} & {*module.hparams}
    assert (module.hparams["beta"], module.hparams["n_critic"], module.latent_dim) == (0.3, 5, 7)
    again = module.rebuilt()
    assert again.hparams == module.hparams
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)


def test_fixed_arguments_are_left_out_if_they_equal_the_defaults_or_no_other_argument_is_passed():
    class Network(ImageGAN):
        def __init__(self, **kwargs):
            super().__init__(network="dcgan", **kwargs)

    class Unclipped(DCGAN):
        def __init__(self, **kwargs):
            super().__init__(clip_gradients=None, **kwargs)

    class Sizes(AdversarialModule):
        def __init__(self, **kwargs):
            super().__init__(image_size=4, channels=3, **kwargs)

    class Small(Sizes):
        def __init__(self, **kwargs):
            super().__init__(latent_dim=4, **kwargs)

    widths = {"image_size": 16, "generator_width": 4, "discriminator_width": 4}
    cases = {
        Network(**widths): {"network"},
        Unclipped(**widths): {"clip_gradients"},
        Sizes(): {"image_size", "channels"},
        Small(): {"image_size", "channels", "latent_dim"},
        Small(seed=1): {"image_size", "channels", "latent_dim"},
    }
    for module, fixed in cases.items():
        assert not fixed & {*module.hparams}
        assert module.hparams["n_critic"] == 1, "defaults are kept"
        assert module.rebuilt().hparams == module.hparams


@pytest.mark.parametrize("wrong", [{"num": 0}, {"num": -1}, {"batch_size": 0}, {"batch_size": -1}], ids=str)
def test_numbers_of_images_below_1_are_refused(tiny_gan, wrong):
    with pytest.raises(RefusedInput, match=f"{next(iter(wrong))}={next(iter(wrong.values()))} must be at least 1"):
        tiny_gan().sample(**{"num": 4, **wrong})
    with pytest.raises(RefusedInput, match="no inputs"):
        tiny_gan().decode(torch.zeros(0, 6))
