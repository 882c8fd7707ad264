import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from lit_gans.common.noise import Noise
from lit_gans.models.sngan import SNGAN
from lit_gans.networks import spectral
from lit_gans.networks.spectral import SpectralNorm
from lit_gans.training.backend import Backend
from lit_gans.training.schedules import Progress
from lit_gans.training.step import TrainingStep

LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)


def largest(layer):
    axis = layer.parametrizations.weight[0].output_axis
    return torch.linalg.svdvals(layer.weight.detach().movedim(axis, 0).flatten(1))[0].item()


@pytest.mark.runs
@pytest.mark.parametrize(
    "settings", [{"network": "resnet"}, {"network": "dcgan", "block": "separable", "num_classes": 10}]
)
def test_after_training_every_layer_of_the_discriminator_has_spectral_norm_1(tiny_gan, random_images, fit, settings):
    module = tiny_gan("sngan", spectral_generator=False, **settings)
    fit(module, random_images(batch_size=4), max_steps=2)
    for _ in range(400):  # the power iteration catches up with the last step
        module.discriminator(torch.rand(2, 1, 16, 16), *module.condition({"label": torch.tensor([0, 1])}))
    layers = [layer for layer in module.discriminator.modules() if isinstance(layer, LAYERS)]
    assert len(layers) >= 5
    assert all(largest(layer) == pytest.approx(1, abs=1e-3) for layer in layers)
    assert not any(parametrize.is_parametrized(layer) for layer in module.generator.modules())


def test_the_generator_too_where_asked(tiny_gan):
    module = tiny_gan("sngan", spectral_generator=True)
    layers = [layer for layer in module.generator.modules() if isinstance(layer, LAYERS)]
    assert all(isinstance(layer.parametrizations.weight[0], SpectralNorm) for layer in layers)


def test_one_power_iteration_in_each_update(tiny_gan, random_images, fit, monkeypatch):
    module, made = tiny_gan("sngan", spectral_generator=False, n_critic=2, accumulate_gradients=2), []
    layers = [layer for layer in module.modules() if isinstance(layer, SpectralNorm)]
    original = spectral._iterate

    def iterate(pairs):
        made.extend(norm for norm, _ in pairs)
        return original(pairs)

    monkeypatch.setattr(spectral, "_iterate", iterate)
    fit(module, random_images(batch_size=4), max_steps=2)
    assert [made.count(layer) for layer in layers] == [2 * (2 + 1)] * len(layers)
    made.clear()
    module.sample(4)
    module.discriminator.eval()
    module.discriminator(torch.rand(2, 1, 16, 16))
    assert not made


def test_a_generator_that_steps_first_iterates_as_often_with_any_number_of_microbatches(
    tiny_gan, random_images, fit, monkeypatch
):
    module, made = tiny_gan("sngan", spectral_generator=True, n_critic=1, accumulate_gradients=3), []
    monkeypatch.setattr(type(module), "generator_first", True)
    layers = [layer for layer in module.generator.modules() if isinstance(layer, SpectralNorm)]
    original = spectral._iterate

    def iterate(pairs):
        made.extend(norm for norm, _ in pairs)
        return original(pairs)

    monkeypatch.setattr(spectral, "_iterate", iterate)
    fit(module, random_images(batch_size=2), max_steps=2)
    assert [made.count(layer) for layer in layers] == [2 * 2] * len(layers), "once for the images, once for the step"


def test_losses_are_the_hinge(tiny_gan):
    module = tiny_gan("sngan")
    module.discriminator.eval()
    with torch.no_grad():
        module.discriminator.head.bias.fill_(0.5)
    real, fake = torch.rand(2, 6, 1, 16, 16) * 4 - 2
    on_real, on_fake = (module.discriminator(images).tolist() for images in (real, fake))
    expected = sum(max(0, 1 - s) for s in on_real) / 6 + sum(max(0, 1 + s) for s in on_fake) / 6
    assert module.discriminator_losses(real, fake, {})["discriminator"].loss.item() == pytest.approx(expected, abs=1e-6)
    assert module.generator_loss(fake, {}).item() == pytest.approx(-sum(on_fake) / 6, abs=1e-6)


def test_defaults_are_the_papers():
    module = SNGAN()
    assert (module.n_critic, module.generator_batch_multiple, module.latent_dim) == (5, 2, 128)
    for optimizer in (module.generator_optimizer, module.discriminator_optimizer):
        assert (optimizer.options["lr"], optimizer.options["betas"]) == (2e-4, (0.0, 0.9))
        assert [optimizer.schedule.at(Progress(step, total=10)) for step in (0, 5, 10)] == [1.0, 0.5, 0.0]


def test_generated_images_have_uniform_random_classes_in_both_steps(tiny_gan, random_images, fit):
    module, made, judged = tiny_gan("sngan", num_classes=10, n_critic=2), [], []
    module.generator.register_forward_pre_hook(lambda network, inputs: made.append(inputs[1].clone()))
    module.discriminator.register_forward_pre_hook(lambda network, inputs: judged.append(inputs[1].clone()))
    fit(module, random_images(batch_size=8), max_steps=1)
    keys = [("discriminator", 0, 0), ("discriminator", 0, 1), ("generator", 0)]
    for index, (key, num) in enumerate(zip(keys, (8, 8, 16), strict=True)):
        noise = Noise(torch.Generator(), (module.seed, *key))
        expected = (noise.uniform("labels", num) * 10).long()
        assert torch.equal(made[index], expected)
        assert torch.equal(judged[2 * index + (index < 2)], expected), "and is judged as an image of that class"
    module.r2_gamma = 1.0
    batch = {"label": torch.zeros(4, dtype=torch.long), "fake_label": torch.ones(4, dtype=torch.long)}
    images = torch.rand(4, 1, 16, 16)
    judged.clear()
    step = TrainingStep(module, Backend({}))
    for kind in ("real", "fake"):
        step._separate_penalty({"image": images, "fake": images, **batch}, "discriminator", kind)
    assert [labels[0].item() for labels in judged] == [0, 1]
