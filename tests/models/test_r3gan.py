"""R3GAN against the authors' code (recorded numbers) and against plain formulas."""

import json

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lit_gans import compose
from lit_gans.callbacks.ema import EMA
from lit_gans.common.errors import RefusedInput
from lit_gans.models.r3gan import R3GAN
from lit_gans.training.schedules import CosineSchedule
from lit_gans.training.step import TrainingStep

from .r3gan_reference import BATCH, HALF_LIFE, OVER, PRESETS, RECORD, STEPS, digest, images, latents, module

KNOWN = json.loads(RECORD.read_text())


class Patterns(Dataset):
    """The images of the record."""

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        pictures, labels = images(index // BATCH)
        return pictures[index % BATCH], labels[index % BATCH]


@pytest.mark.parametrize("num_classes", [0, 7])
def test_three_steps_are_those_of_the_authors_code(fit, monkeypatch, num_classes):
    """In float64: losses, penalties, weights and the average, with schedules of gamma, rate, beta 2 and half-life."""
    ours, turns, losses, forwards = module(num_classes), iter(range(2 * STEPS)), [], []
    ours.discriminator.register_forward_hook(lambda *_: forwards.append(1))
    ours.sample_noise = lambda noise, num: {"latents": latents(next(turns))}
    of_discriminator, of_generator = TrainingStep.discriminator_terms, ours.generator_loss

    def discriminator_turn(step, batch):
        terms = of_discriminator(step, batch)
        loss, penalty = terms["discriminator"]
        losses.append([loss.item(), penalty.item() / ours.now(ours.r1_gamma)])
        return terms

    def generator_turn(*given):
        loss = of_generator(*given)
        losses[-1].append(loss.item())
        return loss

    monkeypatch.setattr(TrainingStep, "discriminator_terms", discriminator_turn)
    ours.generator_loss = generator_turn
    average = EMA(half_life=CosineSchedule(*HALF_LIFE, over=OVER, unit="images"))
    fit(ours, DataLoader(Patterns(), batch_size=BATCH), STEPS, callbacks=[average], precision="64-true")

    assert len(forwards) == 4 * STEPS, "real and fake images in both turns, none for R1 and R2"
    known = KNOWN["steps"][str(num_classes)]
    for (loss, r1, r2, generator), found in zip(known["losses"], losses, strict=True):
        assert found == pytest.approx([loss, (r1 + r2) / 2, generator], rel=1e-10, abs=0)
    for name in ("generator", "discriminator", "average"):
        network = ours.averaged_generator if name == "average" else ours.get_submodule(name)
        difference = torch.tensor(digest(network.parameters()), dtype=torch.float64) - torch.tensor(
            known[name], dtype=torch.float64
        )
        assert difference.abs().max() < 1e-10, (name, difference.abs().max())


@pytest.mark.parametrize("name", PRESETS)
def test_networks_of_the_presets_have_as_many_parameters_as_the_authors(name):
    image_size, width, group_width, num_classes, constant_until = PRESETS[name]
    settings = {"generator_width": width, "discriminator_width": width, "constant_until": constant_until}
    with torch.device("meta"):
        made = R3GAN(image_size=image_size, group_width=group_width, num_classes=num_classes, **settings)
    found = [sum(p.numel() for p in network.parameters()) for network in (made.generator, made.discriminator)]
    assert found == KNOWN["parameters"][name]


@pytest.mark.parametrize("name", PRESETS)
def test_the_experiments_of_the_presets_are_these_networks(name):
    composed = compose(f"experiment=r3gan_{name}", *([] if name == "cifar10" else ["data.root=."]))
    image_size, width, group_width, num_classes, constant_until = PRESETS[name]
    model = composed.model
    assert composed.data.get("image_size", 32) == image_size
    assert (model.generator_width, model.discriminator_width, model.group_width) == (width, width, group_width)
    assert (model.num_classes, model.constant_until) == (num_classes, constant_until)
    assert model.augmentation.pipeline == "r3gan"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"generator_batch_multiple": 2}, "pairs each generated image with one real"),
        ({"generator_width": 28}, "width=28 must be a multiple of group_width=8"),
        ({"constant_until": 12}, "constant_until=12 must be 4, 8, 16"),
        ({"blocks": 0}, "blocks=0"),
        (
            {"network": "dcgan", "group_width": 4},
            "group_width and constant_until: the dcgan networks have no such option",
        ),
    ],
)
def test_refusals(tiny_gan, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan("r3gan", **settings)
