"""What a user calls: `gan(z)`, `Trainer.predict` and `load_from_checkpoint`, of every GAN."""

import logging

import pytest
import torch
from lightning.pytorch.utilities.model_summary import ModelSummary
from torch.utils.data import DataLoader, TensorDataset

from lit_gans import RefusedInput
from lit_gans.callbacks import EMA
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.translator import Translator
from tests.gans import GANS
from tests.tiny import quiet_trainer


def inputs_of(module, num=5):
    generator = torch.Generator().manual_seed(0)
    if isinstance(module, Translator):
        return torch.rand(num, 1, 16, 16, generator=generator)
    return torch.randn(num, module.latent_dim, generator=generator)


def images_of(module, inputs):
    return module.translate(inputs) if isinstance(module, Translator) else module.decode(inputs)


def predicted(module, loader):
    return torch.cat(quiet_trainer().predict(module, loader))


@pytest.mark.parametrize("name", GANS)
def test_a_gan_that_is_called_returns_what_decode_and_translate_return_with_a_graph(tiny_gan, name):
    module = tiny_gan(name)
    inputs = inputs_of(module).requires_grad_()
    images = module(inputs)
    assert torch.equal(images.detach(), images_of(module, inputs.detach()))
    assert images.min() >= 0
    assert images.max() <= 1
    (gradient,) = torch.autograd.grad(images.sum(), inputs)
    assert gradient.abs().sum() > 0
    assert module.generator.training, "the mode is restored"


@pytest.mark.parametrize("name", GANS)
def test_trainer_predict_generates_the_images_of_a_loader_s_batches(tiny_gan, name):
    module = tiny_gan(name)
    inputs = inputs_of(module)
    expected = images_of(module, inputs)
    given = inputs * 2 - 1 if isinstance(module, Translator) else inputs
    for loader in (DataLoader(given, batch_size=5), DataLoader(TensorDataset(given), batch_size=5)):
        torch.testing.assert_close(predicted(module, loader), expected, rtol=0, atol=1e-6)


def test_labels_are_the_second_argument_and_the_second_output_of_a_loader(tiny_gan):
    module = tiny_gan("dcgan", num_classes=3)
    latents, labels = inputs_of(module), torch.tensor([2, 0, 2, 1, 1])
    expected = module.decode(latents, labels=labels)
    assert torch.equal(module(latents, labels).detach(), expected)
    assert torch.equal(module(latents).detach(), module.decode(latents)), "all classes in turn"
    pairs = DataLoader(TensorDataset(latents, labels), batch_size=5)
    torch.testing.assert_close(predicted(module, pairs), expected, rtol=0, atol=0)


def test_the_averaged_generator_is_called_if_it_exists(tiny_gan, random_images, fit):
    module = tiny_gan()
    fit(module, random_images(), 2, callbacks=[EMA()])
    latents = inputs_of(module)
    assert torch.equal(module(latents), module.decode(latents, weights="ema"))
    assert not torch.equal(module(latents), module.decode(latents, weights="raw"))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda images: {"input": images * 2 - 1, "image": torch.zeros(5, 1, 16, 16)}, None),
        (lambda images: images.mul(255).byte(), None),
        (lambda images: images, "map images in [0, 1] by 2 * images - 1"),
    ],
)
def test_a_translator_predicts_from_training_inputs_and_warns_of_another_range(tiny_gan, caplog, data, sentence):
    module = tiny_gan("pix2pix")
    images = inputs_of(module).mul(255).round() / 255
    with caplog.at_level(logging.WARNING):
        found = module.predict_step(data(images), 0)
    if sentence is None:
        torch.testing.assert_close(found.detach(), module.translate(images), rtol=0, atol=1e-5)
        assert not caplog.records
    else:
        assert sentence in caplog.text


@pytest.mark.parametrize(
    ("name", "inputs", "labels", "sentence"),
    [
        ("dcgan", torch.zeros(5, 7), None, r"float tensor of shape \(n, 6\), but got \(5, 7\): use latents\(n\)"),
        ("dcgan", torch.zeros(6), None, r"float tensor of shape \(n, 6\), but got \(6,\)"),
        ("dcgan", torch.zeros(5, 1, 16, 16), None, r"generates images from latents.* got \(5, 1, 16, 16\)"),
        ("dcgan", torch.zeros(5, 6, dtype=torch.long), None, "a float tensor of shape"),
        ("dcgan", torch.zeros(5, 6), torch.zeros(5), "trained without classes"),
        ("pix2pix", torch.zeros(5, 16, 16, 1), None, r"channels are last: use images.permute\(0, 3, 1, 2\)"),
        ("pix2pix", torch.zeros(5, 6), None, r"expected a batch \(n, channels, height, width\)"),
        ("cyclegan", torch.zeros(5, 1, 16, 16, dtype=torch.uint8), None, r"float tensor \(n, c, h, w\), but got to"),
        ("cyclegan", torch.zeros(5, 1, 16, 16), torch.zeros(5), "cyclegan has no classes"),
    ],
)
def test_other_inputs_are_refused(tiny_gan, name, inputs, labels, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan(name)(inputs, labels)


def test_lightning_s_summary_and_export_call_the_gan(tiny_gan):
    module = tiny_gan()
    module.example_input_array = inputs_of(module)
    assert "[5, 1, 16, 16]" in str(ModelSummary(module))
    exported = torch.export.export(module.eval(), (module.example_input_array,)).module()
    expected = module(module.example_input_array)
    torch.testing.assert_close(exported(module.example_input_array), expected, rtol=0, atol=1e-6)


MAPS = {
    "none": None,
    "text": "cpu",
    "device": torch.device("cpu"),
    "function": lambda storage, location: storage,
    "function that leaves it to torch": lambda storage, location: None,
    "mapping": {"cuda:0": "cpu"},
}


@pytest.mark.parametrize("name", MAPS)
def test_load_from_checkpoint_takes_every_map_location_of_torch(tiny_gan, random_images, fit, tmp_path, name):
    module = tiny_gan()
    fit(module, random_images(), 1).save_checkpoint(tmp_path / "last.ckpt")
    again = DCGAN.load_from_checkpoint(tmp_path / "last.ckpt", map_location=MAPS[name])
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
