from functools import partial

import numpy as np
import pytest
import torch
from jaxtyping import config
from lightning.pytorch import LightningDataModule
from PIL import Image
from torch.nn import functional
from torch.utils.data import DataLoader

from lit_gans.callbacks import EMA, PairedMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.paired import DigitEdges, PairedFolder
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.translator import random_crops


@pytest.fixture
def module(tiny_gan):
    return tiny_gan("pix2pix")


def drawn(module, num, seed=0):
    return module.sample_noise(Noise(torch.Generator(), (seed,)), num)


def test_losses_are_the_papers(module):
    real, fake, picture = torch.rand(3, 4, 1, 16, 16) * 2 - 1
    batch = {"image": real, "input": picture}
    on_real, on_fake = (torch.sigmoid(module.discriminator(images, picture)) for images in (real, fake))
    expected = -(on_real.log().mean() + (1 - on_fake).log().mean()) / 2
    torch.testing.assert_close(module.discriminator_losses(real, fake, batch)["discriminator"].loss, expected)
    expected = -on_fake.log().mean() + 100 * (fake - real).abs().mean()
    torch.testing.assert_close(module.generator_loss(fake, batch), expected)


def test_jitter_crops_input_and_image_alike_and_mirrors_half(module):
    ramp = torch.linspace(-1, 1, 16).expand(64, 1, 16, 16)
    batch = drawn(module, 64) | {"image": ramp, "input": ramp.mT.contiguous()}
    crop = module.augment(batch)
    across, down = crop["image"][:, 0, 8], crop["input"][:, 0, :, 8]
    steps = across.diff(dim=1)[:, 2:-2].mean(1)
    step = 2 / 15 * 256 / 286  # enlarged
    torch.testing.assert_close(steps.abs(), torch.full((64,), step), rtol=1e-3, atol=1e-4)
    assert 0.3 < (steps < 0).float().mean() < 0.7
    torch.testing.assert_close(down.diff(dim=1)[:, 2:-2].mean(1), torch.full((64,), step), rtol=1e-3, atol=1e-4)
    same = module.augment(batch | {"input": ramp})
    assert torch.equal(same["image"], same["input"])
    still = Pix2Pix(image_size=16, jitter=False, patch_depth=2)
    assert all(still.augment(batch)[name] is batch[name] for name in ("image", "input"))


def test_the_center_of_an_unshifted_crop_is_the_enlarged_image(module):
    image = torch.rand(1, 1, 16, 16)
    center = torch.tensor([[0.5, 0.5, 0.9]])  # no shift, no mirror
    crop = module.augment({"image": image, "input": image, "jitter": center})["image"]
    coordinates = (torch.arange(16) + 0.5) / 16 * 2 - 1
    grid = torch.stack(torch.meshgrid(coordinates, coordinates, indexing="xy"), -1)[None] * 256 / 286
    torch.testing.assert_close(crop, functional.grid_sample(image, grid, align_corners=False))


def test_crops_are_parts_of_the_images_at_the_places_of_the_numbers():
    images = torch.arange(3 * 2 * 6 * 9.0).reshape(3, 2, 6, 9)
    numbers = torch.tensor([[0.0, 0.0], [0.999, 0.999], [0.4, 0.5]])  # of 3 rows and 5 columns to begin with
    crops = random_crops(images, numbers, (4, 5))
    expected = [images[0, :, :4, :5], images[1, :, 2:, 4:], images[2, :, 1:5, 2:7]]
    assert torch.equal(crops, torch.stack(expected))


def test_larger_pairs_are_cropped_at_the_same_place_and_mirrored(module):
    ramp = torch.arange(24.0).expand(64, 1, 20, 24)
    batch = drawn(module, 64) | {"image": ramp, "input": ramp + 100}
    crop = module.augment(batch)
    assert crop["image"].shape == (64, 1, 16, 16)
    assert torch.equal(crop["input"], crop["image"] + 100)
    steps = crop["image"][:, 0, 0].diff(dim=1)
    assert (steps.abs() == 1).all(), "not enlarged"
    assert 0.3 < (steps[:, 0] < 0).float().mean() < 0.7
    assert len(crop["image"].amin((1, 2, 3)).unique()) == 24 - 16 + 1
    still = Pix2Pix(image_size=16, jitter=False, patch_depth=2)
    assert (still.augment(batch)["image"][:, 0, 0].diff(dim=1) == 1).all()


def test_full_size_images_are_translated_like_crops_of_padded_images(module):
    whole = torch.rand(2, 1, 32, 48)
    translated = module.translate(whole, seed=3)
    assert translated.shape == (2, 1, 32, 48)
    odd = module.translate(whole[..., :30, :41], seed=3)
    reflected = torch.nn.functional.pad(whole[..., :30, :41], (0, 7, 0, 2), mode="reflect")
    assert torch.equal(odd, module.translate(reflected, seed=3)[..., :30, :41])
    assert module.translate(whole[..., :3, :5]).shape == (2, 1, 3, 5), "smaller than the crops, too"


def test_a_training_on_crops_measures_and_shows_whole_pairs(tiny_gan, fit, tmp_path):
    for side in "AB":
        (tmp_path / "pairs" / side).mkdir(parents=True)
        for index in range(4):
            pixels = np.random.default_rng(index).integers(0, 256, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pairs" / side / f"{index}.png")
    sizes = {"image_size": 16, "whole_size": (24, 40), "channels": 1, "batch_size": 2}
    data = PairedFolder(str(tmp_path / "pairs"), cache=str(tmp_path / "cache"), **sizes)
    module, measured = tiny_gan("pix2pix"), PairedMetrics(num_samples=4)
    fit(module, data, max_steps=2, callbacks=[measured])
    assert 0 < measured.values["metric/l1"] < 1
    grid, columns = module.sample_grid(6, 0, data)
    assert (grid.shape, columns) == ((6, 1, 24, 40), 6)
    with pytest.raises(RefusedInput, match=r"whole_size=24: crops of image_size=\[16,32\] do not fit into this size"):
        PairedFolder(str(tmp_path / "pairs"), image_size=(16, 32), whole_size=24)


def test_dropout_is_the_only_noise_and_a_function_of_the_seed(module, random_images):
    inputs = module.sampling_inputs(3, 0, random_images())
    first, again, other = (module.decode(inputs, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first, module.translate((inputs + 1) / 2, seed=1))


def test_refusals(module, fit, tiny_gan):
    with pytest.raises(RefusedInput, match="needs pairs: use data=digit_edges, data=emoji_lines or data=paired_folder"):
        fit(module, Digits(image_size=16), max_steps=1)
    with pytest.raises(RefusedInput, match="call translate"):
        module.sample(2)
    for settings in ({"l1_weight": -1.0}, {"patch_depth": 0}):
        with pytest.raises(RefusedInput, match=next(iter(settings))):
            tiny_gan("pix2pix", **settings)


@pytest.mark.runs
def test_l1_falls_by_half_on_held_out_digits(fit):
    fast = OptimizerConfig("Adam", lr=2e-3, betas=(0.5, 0.999))
    sizes = {"image_size": 16, "channels": 1, "generator_width": 8, "discriminator_width": 4, "patch_depth": 2}
    module = Pix2Pix(**sizes, jitter=False, generator_optimizer=fast, discriminator_optimizer=fast)
    measured = PairedMetrics(every_n_steps=1000, num_samples=100)
    fit(module, DigitEdges(image_size=16, batch_size=16), max_steps=80, callbacks=[EMA(), measured])
    assert measured.values["metric/l1"] < measured.first["metric/l1"] / 2


class OwnData(LightningDataModule):
    """A datamodule of a user, which has nothing but loaders."""

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(0)
        pairs = [torch.rand(2, 1, 16, 16, generator=generator) * 2 - 1 for _ in range(4)]
        return DataLoader([{"input": pair[0], "image": pair[1]} for pair in pairs], batch_size=2)

    predict_dataloader = train_dataloader


@pytest.mark.parametrize("name", ["pix2pix", "cyclegan"])
def test_a_datamodule_of_a_user_trains_and_predicts(tiny_gan, fit, name):
    module = tiny_gan(name)
    trainer = fit(module, OwnData(), max_steps=2)
    assert trainer.global_step == 2
    assert [len(images) for images in trainer.predict(module, datamodule=OwnData())] == [2, 2]


def test_pairs_of_two_sizes_are_refused_in_every_batch(module, tiny_gan, fit):
    same, other = torch.zeros(2, 1, 24, 24), torch.zeros(2, 1, 20, 24)
    batches = [{"input": same, "image": same}, {"input": same, "image": other}]
    sentence = r"input has the height and width \(24, 24\), but whose image has \(20, 24\): pix2pix crops both"
    with pytest.raises(RefusedInput, match=sentence):
        fit(module, DataLoader(batches, batch_size=None), max_steps=2)
    assert module.trainer.global_step == 1
    assert fit(tiny_gan("cyclegan"), DataLoader(batches, batch_size=None), max_steps=2).global_step == 2


@pytest.mark.parametrize("name", ["pix2pix", "cyclegan", "autoencoder_kl"])
@pytest.mark.parametrize("size", [(15, 16), (16, 8)])
def test_images_that_are_smaller_than_the_crops_are_refused(tiny_gan, fit, name, size):
    large, small = torch.zeros(2, 1, 16, 16), torch.zeros(2, 1, *size)
    batches = [{"input": large, "image": large}, {"input": small, "image": small}]
    sentence = rf"images of shape \(1, {size[0]}, {size[1]}\), but .* \(1, 16, 16\), or larger images, which it crops"
    with pytest.raises(RefusedInput, match=sentence):
        fit(tiny_gan(name), DataLoader(batches, batch_size=None), max_steps=2)


@pytest.mark.parametrize("name", ["pix2pix", "cyclegan", "autoencoder_kl"])
def test_images_that_are_no_floats_or_have_other_channels_are_refused(tiny_gan, monkeypatch, name):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as it is for users
    module, images = tiny_gan(name), torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    with pytest.raises(RefusedInput, match=r"a float tensor .* but got torch\.uint8: images / 255 converts"):
        module.translate(images)
    for decode in (module.decode, partial(module.decode_in, "a_to_b")):
        with pytest.raises(RefusedInput, match=r"inputs are a tensor of torch\.uint8: expected floats"):
            decode(images)
    with pytest.raises(RefusedInput, match=rf"{module.name} got images of shape \(3, 16, 16\), but the model expects"):
        module.translate(torch.zeros(2, 3, 16, 16))
    for numbers in ({"batch_size": 0}, {"batch_size": -1}):
        with pytest.raises(RefusedInput, match="must be at least 1"):
            module.translate(images / 255, **numbers)
    with pytest.raises(RefusedInput, match="no inputs"):
        module.translate(torch.zeros(0, 1, 16, 16))
