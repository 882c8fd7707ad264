import pytest
import torch
from jaxtyping import config
from torch.utils.data import DataLoader, TensorDataset

from lit_gans import DCGAN, Digits
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
from lit_gans.models.image_gan import ImageGAN
from lit_gans.training.optim import OptimizerConfig
from tests.tiny import supports_classes

IMAGE_GANS = [  # those whose networks can be chosen and conditioned
    name
    for name, cls in sorted(gans().items())
    if issubclass(cls, ImageGAN) and "network" in schema(cls) and supports_classes(name)
]


def test_gans_with_networks_of_choice_are_found():
    assert {"d2gan", "d3gan", "dcgan", "gan", "r3gan", "sngan", "wgan_gp"} <= {*IMAGE_GANS}


@pytest.mark.parametrize("name", IMAGE_GANS)
@pytest.mark.parametrize("network", ["dcgan", "resnet", "mlp"])
def test_every_gan_trains_with_every_pair_of_networks_and_classes(tiny_gan, random_images, fit, name, network):
    module = tiny_gan(name, network=network, num_classes=10, n_critic=1)
    trainer = fit(module, random_images(batch_size=8), max_steps=2)
    assert trainer.global_step == 2
    images = module.sample(3, label=1)
    assert images.shape == (3, 1, 16, 16)
    assert images.isfinite().all()
    assert not torch.equal(images, module.sample(3, label=2))
    assert module.labels(12).tolist() == [*range(10), 0, 1]
    assert torch.equal(module.sample(12), module.decode(module.latents(12), labels=torch.arange(12) % 10))


@pytest.mark.parametrize("block", ["grouped", "separable", "inverted_residual"])
@pytest.mark.parametrize("network", ["dcgan", "resnet"])
def test_cheap_blocks_make_the_networks_cheaper(tiny_gan, random_images, fit, network, block):
    sizes = {"network": network, "generator_width": 16, "discriminator_width": 16}
    plain, cheap = tiny_gan("dcgan", **sizes), tiny_gan("dcgan", block=block, **sizes)
    for name in cheap.network_names:
        counts = [sum(p.numel() for p in getattr(module, name).parameters()) for module in (cheap, plain)]
        assert counts[0] < 0.8 * counts[1]
    fit(cheap, random_images(batch_size=4), max_steps=1)


def test_the_networks_are_conditioned_on_the_classes_of_their_images(tiny_gan, random_images, fit):
    module, received = tiny_gan("dcgan", num_classes=10, n_critic=2, generator_batch_multiple=3), []
    losses, update = module.discriminator_losses, module.generator_loss
    module.discriminator_losses = lambda real, fake, batch: received.append((real, batch)) or losses(real, fake, batch)
    module.generator_loss = lambda fake, batch: received.append((fake, batch)) or update(fake, batch)
    data = random_images(batch_size=4)
    fit(module, data, max_steps=1)
    for images, batch in received[:2]:
        pixels = ((images + 1) * 127.5).round().to(torch.uint8)
        rows = [(data.dataset.images == image).flatten(1).all(1).nonzero().item() for image in pixels]
        assert batch["label"].tolist() == data.dataset.labels[rows].tolist()
    fake, batch = received[2]
    assert len(fake) == 12, "three times as many generated images"
    assert batch["label"].tolist() == received[1][1]["label"].repeat_interleave(3).tolist()


def test_classes_must_be_those_of_the_data(tiny_gan, random_images, fit):
    with pytest.raises(RefusedInput, match="num_classes=7, but the data has 10 classes"):
        fit(tiny_gan("dcgan", num_classes=7), random_images(), max_steps=1)
    fit(tiny_gan("dcgan"), random_images(), max_steps=1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"generator_width": 0}, "generator_width=0"),
        ({"network": "resnet", "bias": True}, "bias=True: the resnet networks have no such option"),
        ({"network": "mlp", "block": "separable"}, "block=separable: the mlp networks"),
    ],
)
def test_refusals(tiny_gan, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan("dcgan", **settings)


@pytest.mark.runs
def test_a_conditional_gan_learns_what_a_label_means(fit):
    """Two classes, black and white: after some steps the label decides the brightness."""

    class BlackAndWhite(Digits):
        num_classes = 2

        def load(self):
            labels = torch.arange(64) % 2
            return (labels * 200 + 20).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 16, 16).contiguous(), labels

    fast = OptimizerConfig("Adam", lr=2e-3, betas=(0.5, 0.9))
    settings = {"generator_width": 8, "discriminator_width": 8, "latent_dim": 4, "num_classes": 2}
    optimizers = {"generator_optimizer": fast, "discriminator_optimizer": fast}
    module = DCGAN(image_size=16, channels=1, **settings, **optimizers)
    fit(module, BlackAndWhite(image_size=16, batch_size=32), max_steps=100)
    black, white = (module.sample(32, label=label).mean().item() for label in (0, 1))
    assert black == pytest.approx(20 / 255, abs=0.05)
    assert white == pytest.approx(220 / 255, abs=0.05)


@pytest.mark.parametrize(
    ("shape", "settings", "sentence"),
    [
        ((3, 16, 16), {}, r"yields images of shape \(3, 16, 16\), but the model expects \(1, 16, 16\)"),
        ((1, 16, 16), {"num_classes": 10}, "has num_classes=10, but the loader yields no labels"),
    ],
)
def test_images_of_a_loader_that_the_model_cannot_take_are_named(tiny_gan, fit, shape, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        fit(tiny_gan(**settings), DataLoader(torch.zeros(16, *shape), batch_size=8), max_steps=1)


LABELS = {
    "from 1 on": (torch.arange(8) + 3, "the labels are numbers from 3 to 10, but the model has num_classes=10"),
    "negative": (torch.arange(8) - 1, "from -1 to 6, .* the classes 0 to 9"),
    "a column": (torch.arange(8)[:, None], r"of shape \(8, 1\), .* use labels\[:, 0\]\."),
    "one-hot": (torch.eye(10)[:8], r"of torch.float32 and of shape \(8, 10\), .* use labels\.argmax\(1\)\."),
    "floats": (torch.arange(8.0), r"of torch.float32 and of shape \(8,\), .* use labels\.long\(\)\."),
    "a column of bytes": (torch.arange(8, dtype=torch.uint8)[:, None], r"use labels\[:, 0\]\.long\(\)\."),
    "maps": (torch.zeros(8, 4, 4).long(), "yield one index for each image"),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_that_are_no_classes_are_refused_with_what_would_be_right(tiny_gan, fit, monkeypatch, name):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    labels, sentence = LABELS[name]
    module, images = tiny_gan(num_classes=10), torch.zeros(8, 1, 16, 16)
    with pytest.raises(RefusedInput, match=sentence):
        fit(module, DataLoader(TensorDataset(images, labels), batch_size=8), max_steps=1)
    with pytest.raises(RefusedInput, match=sentence):
        module.decode(module.latents(8), labels=labels)
    if labels.dim() == 2:
        with pytest.raises(RefusedInput, match=sentence):
            fit(module, DataLoader([(images, torch.arange(8)), (images, labels)], batch_size=None), max_steps=2)
        assert module.trainer.global_step == 1, "every batch is checked"


def test_labels_of_32_bits_train_and_other_numbers_of_labels_are_refused(tiny_gan, fit, monkeypatch):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    module, images = tiny_gan(num_classes=10), torch.zeros(8, 1, 16, 16)
    assert fit(module, DataLoader([(images, torch.arange(8).int())], batch_size=None), max_steps=1).global_step == 1
    with pytest.raises(RefusedInput, match="there are 4 labels for 8 images"):
        fit(module, DataLoader([(images, torch.arange(4))], batch_size=None), max_steps=1)
