"""The named experiments of the studies compose, have the studies' networks, and train."""

import pytest
import torch

from lit_gans import compose
from lit_gans.config.build import resolve
from lit_gans.config.signatures import construct

COUNTS = {
    "dcgan_scaling_study": (3_823_555, 2_766_529),
    "sngan_scaling_study": (3_821_891, 4_854_977),
    "wgan_gp_scaling_study": (3_823_555, 2_766_529),
    "dcgan_deepspeed": (3_576_704 + 3, 2_765_568 + 65),  # and our biases where no batch norm follows
    "pix2pix_facades": (54_413_955, 2_768_705),
    "gan_colossal": (None, None),
}
SMALL = ("model.generator_width=4", "model.discriminator_width=4")


def composed(name, tmp_path, *overrides):
    root = [f"data.root={tmp_path}"] if name == "pix2pix_facades" else []
    return resolve(compose(f"experiment={name}", *root, f"trainer.default_root_dir={tmp_path}", *overrides))


def count(network):
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("name", "counts"), [pair for pair in COUNTS.items() if all(pair[1])])
def test_networks_have_the_parameter_counts_of_the_study(name, counts, tmp_path):
    with torch.device("meta"):
        module = construct(composed(name, tmp_path)["model"], "model")
    assert (count(module.generator), count(module.discriminator)) == counts


@pytest.mark.parametrize("name", COUNTS)
def test_each_study_trains(name, tmp_path, random_images, fit):
    extra = ["data.image_size=16"] if name != "pix2pix_facades" else ["data.image_size=16", "model.patch_depth=1"]
    module = construct(composed(name, tmp_path, *SMALL, *extra)["model"], "model")
    data = random_images(image_size=16, channels=module.channels, batch_size=2)
    fit(module, data, max_steps=1)
    assert all(torch.isfinite(parameter).all() for parameter in module.parameters())


def test_the_studies_settings_are_theirs(tmp_path):
    tutorial = composed("dcgan_deepspeed", tmp_path)
    adam = tutorial["model"]["generator_optimizer"]
    assert (adam["lr"], adam["betas"], adam["eps"]) == (2e-4, [0.5, 0.999], 1e-8)
    assert tutorial["trainer"]["strategy"]["_target_"].endswith("NetworkDeepSpeed")
    assert (tutorial["trainer"]["strategy"]["stage"], tutorial["data"]["batch_size"]) == (0, 64)
    wasserstein = composed("wgan_gp_scaling_study", tmp_path)["model"]
    assert (wasserstein["critic_norm"], wasserstein["n_critic"]) == ("layer", 5)
    colossal = composed("gan_colossal", tmp_path)["model"]
    assert (colossal["accumulate_gradients"], colossal["clip_gradients"]) == (4, 2.0)
    facades = composed("pix2pix_facades", tmp_path)["data"]
    assert (facades["batch_size"], facades["image_size"], facades["direction"]) == (1, 256, "b_to_a")
