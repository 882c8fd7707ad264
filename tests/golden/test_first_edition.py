"""A checkpoint and a `run.yaml` of the first edition load, sample, resume and train as they did then."""

import json
from pathlib import Path

import torch

from lit_gans import load

from .test_golden import SAME_PLATFORM

FILES = Path(__file__).with_name("first_edition")
OVERRIDES = (
    "experiment=dcgan_digits",
    "model.generator_width=2",
    "model.discriminator_width=2",
    "model.latent_dim=4",
    "data.image_size=16",
    "data.batch_size=500",
    "trainer.log_every_n_steps=1",
    "trainer.accelerator=cpu",
    "metrics.num_samples=100",
    "metrics.every_n_steps=4",
    "logger=csv",
    "callbacks.samples.num=4",
    "callbacks.checkpoint.every_n_train_steps=4",
)
EXPECTED = torch.load(FILES / "expected.pt", weights_only=True)
CLOSE = {"rtol": 0, "atol": 0} if SAME_PLATFORM else {"rtol": 0.05, "atol": 0.02}  # rounding grows with every Adam step


def state(path):
    return torch.load(path, map_location="cpu", weights_only=True)["state_dict"]


def test_its_checkpoint_samples():
    torch.testing.assert_close(load(FILES / "last.ckpt").sample(4, seed=0), EXPECTED["samples"], **CLOSE)


def test_its_checkpoint_resumes(command, tmp_path):
    code, _, err = command(
        "train", *OVERRIDES, "trainer.max_steps=24", f"resume={FILES / 'last.ckpt'}", "hydra.run.dir=run"
    )
    assert code == 0, err
    torch.testing.assert_close(state(tmp_path / "run/checkpoints/last.ckpt"), EXPECTED["weights_at_24"], **CLOSE)


def test_its_checkpoint_names_data_and_metrics_for_evaluate(command):
    code, _, err = command("evaluate", f"checkpoint={FILES / 'last.ckpt'}", "output=measured.json")
    assert code == 0, err
    measured = json.loads(Path("measured.json").read_text())
    assert (measured["num_samples"], measured["num_real"]) == (100, 5000)
    assert measured["metric/fid_digits"] > 0


def test_its_run_file_trains_under_the_lightning_cli(command, tmp_path):
    Path("run.yaml").write_text((FILES / "run.yaml").read_text().replace("RUN_FOLDER", str(tmp_path / "run")))
    code, _, err = command("fit", "-c", "run.yaml")
    assert code == 0, err
    torch.testing.assert_close(state(tmp_path / "run/checkpoints/last.ckpt"), state(FILES / "last.ckpt"), **CLOSE)


def test_its_file_of_the_configuration_builds(command):
    from lit_gans import build

    config = torch.load(FILES / "last.ckpt", weights_only=True)["lit_gans"]["config"]
    module, data, _ = build(config)
    assert (type(module).__name__, type(data).__name__) == ("DCGAN", "Digits")
