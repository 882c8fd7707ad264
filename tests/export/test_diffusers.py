import json

import pytest
import torch
from safetensors.torch import load_file

from lit_gans.checkpoints.diffusers import CONFIG, WEIGHTS
from lit_gans.common.errors import RefusedInput
from lit_gans.export.diffusers import save_diffusers

LAYOUT = {"asymmetric_padding": True, "groups": 4}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"asymmetric_padding": False}, "train one with model.asymmetric_padding=true, or use format=safetensors"),
        ({"groups": None, "generator_width": 8}, "train one with model.groups=2"),
        ({"quantizer": "vq", "num_codes": 4}, "train one with model.quantizer=kl"),
    ],
)
def test_networks_that_diffusers_cannot_represent_are_refused(tiny_gan, tmp_path, settings, why):
    with pytest.raises(RefusedInput, match=why):
        save_diffusers(tiny_gan("autoencoder_kl", **LAYOUT | settings), tmp_path / "vae")
    with pytest.raises(RefusedInput, match=r"writes autoencoders .*, not a DCGAN"):
        save_diffusers(tiny_gan(), tmp_path / "vae")
    assert not (tmp_path / "vae").exists()


def test_averaged_weights_are_written_if_there_are_any_and_in_float16_on_request(tiny_gan, tmp_path):
    module = tiny_gan("autoencoder_kl", **LAYOUT)
    with torch.no_grad():
        module.start_average().last.weight.fill_(0.5)
    for weights, name in ((None, "ema"), ("raw", "raw")):
        save_diffusers(module, tmp_path / name, weights)
        network = module.averaged_generator if name == "ema" else module.generator
        assert torch.equal(load_file(tmp_path / name / WEIGHTS)["decoder.conv_out.weight"], network.last.weight)
    tensors = load_file(save_diffusers(module, tmp_path / "half", dtype="float16") / WEIGHTS)
    assert {value.dtype for value in tensors.values()} == {torch.float16}


def test_rectangles_have_both_sides_in_the_configuration(tiny_gan, tmp_path):
    folder = save_diffusers(tiny_gan("autoencoder_kl", image_size=(16, 24), **LAYOUT), tmp_path)
    config = json.loads((folder / CONFIG).read_text())
    assert (config["sample_size"], config["block_out_channels"], config["norm_num_groups"]) == ([16, 24], [4, 8], 4)
