import json
from pathlib import Path

import pytest
import torch

from lit_gans.networks.autoencoder import Autoencoder
from lit_gans.networks.autoencoder_names import to_diffusers
from lit_gans.networks.bottlenecks import DiagonalGaussian

SD = {"width": 128, "multipliers": (1, 2, 4, 4), "blocks": 2}  # also of SDXL and FLUX


def stored():
    """Shapes of the tensors of `diffusers.AutoencoderKL` 0.42 by name, for Stable Diffusion."""
    return json.loads((Path(__file__).parent / "diffusers_autoencoder.json").read_text())


@pytest.mark.parametrize("flux", [False, True])
def test_the_published_autoencoders_have_these_names_and_shapes(flux):
    expected = stored()
    if flux:
        wider = {"encoder.conv_out.weight": 0, "encoder.conv_out.bias": 0, "decoder.conv_in.weight": 1}
        for name, axis in wider.items():
            expected[name][axis] *= 4
        expected = {name: shape for name, shape in expected.items() if "quant_conv" not in name}
    latent_channels = 16 if flux else 4
    convolutions = {"quant_conv": not flux, "post_quant_conv": not flux}
    with torch.device("meta"):
        network = Autoencoder(
            3, 64, latent_channels, DiagonalGaussian(), 2 * latent_channels, groups=32, **SD, **convolutions
        )
    assert {name: [*value.shape] for name, value in to_diffusers(network).items()} == expected
