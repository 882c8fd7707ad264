"""`lit-gans scale` on the checkpoint of a run."""

import re

import pytest
import torch
from diffusers import AutoencoderKL as Diffusers
from torchvision.utils import save_image

from lit_gans.config.load import load


@pytest.fixture
def pictures(tmp_path):
    (tmp_path / "pictures/more").mkdir(parents=True)
    images = torch.rand(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for number, image in enumerate(images):
        save_image(image, tmp_path / ("pictures", "pictures/more")[number % 2] / f"{number}.png")
    return images.mul(255).add(0.5).floor() / 255


def test_latents_that_are_scaled_have_deviation_one(saved, ran, pictures):
    saved("autoencoder_kl", asymmetric_padding=True, groups=2)
    out = ran("scale", "checkpoint=run", "input=pictures", "batch_size=16")
    assert "latents of 40 images" in out
    factor, shift = (float(re.search(rf"{name}_factor=([-.0-9]+)", out)[1]) for name in ("scaling", "shift"))
    network = load("run").averaged_generator
    with torch.no_grad():
        mean, log_variance = network.encoder(pictures * 2 - 1).chunk(2, 1)
    torch.testing.assert_close(torch.tensor(shift), mean.mean(), rtol=0, atol=0.05)
    # the variance of a sample is the variance of the means plus the mean of the variances
    variance = mean.var(correction=0) + log_variance.exp().mean()
    torch.testing.assert_close(torch.tensor(factor), variance.rsqrt(), rtol=0.05, atol=0)
    assert mean.std() < 0.5 * variance.sqrt(), "noise is a large part of the latents of an untrained autoencoder"
    factors = f"scaling_factor={factor}", f"shift_factor={shift}"
    ran("export", "checkpoint=run", "format=diffusers", "output=mine", *factors)
    config = Diffusers.from_pretrained("mine").config
    assert (config.scaling_factor, config.shift_factor) == (factor, shift)


def test_other_models_and_formats_are_refused(saved, refused, pictures):
    saved()
    assert "run: expected an autoencoder (model=autoencoder_kl), not a DCGAN." in refused(
        "scale", "checkpoint=run", "input=pictures"
    )
    assert "scaling_factor= applies to format=diffusers only" in refused(
        "export", "checkpoint=run", "scaling_factor=0.2"
    )
