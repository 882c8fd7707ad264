"""`lit-gans fit` with our strategies: the same weights as `lit-gans train`."""

import torch
import yaml

from . import ranks

TRAIN = """
train model=gan model.generator_width=4 model.discriminator_width=4 model.latent_dim=6 data=digits data.image_size=16
data.batch_size=4 metrics=none logger=none callbacks.samples=null trainer.max_steps=3 trainer.accelerator=cpu
trainer.devices=2 strategy=ddp hydra.run.dir=run
"""


def test_the_configuration_of_a_run_trains_the_same_weights(tmp_path):
    for line in (TRAIN, "fit -c run/run.yaml"):
        codes, printed = ranks.command_line(line.split(), tmp_path, ranks.environments(2))
        assert not any(codes), printed
    files = (tmp_path / f"run/{place}checkpoints/last.ckpt" for place in ("", "fit/"))
    one, other = (torch.load(file, weights_only=True) for file in files)
    assert one["global_step"] == other["global_step"] == 3
    for name, value in one["state_dict"].items():
        assert torch.equal(other["state_dict"][name], value), name


def test_a_strategy_is_chosen_by_its_name(command):
    fit = ["fit", "--model", "GAN", "--data", "Digits", "--trainer.accelerator", "cpu", "--trainer.logger", "false"]
    code, printed, errors = command(*fit, "--trainer.strategy", "network_ddp", "--print_config")
    assert code == 0, errors
    assert yaml.safe_load(printed)["trainer"]["strategy"] == "network_ddp"
