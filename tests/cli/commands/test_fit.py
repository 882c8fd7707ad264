"""`lit-gans fit`: the Lightning CLI with identical values, on class names, and what it refuses."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml

from lit_gans.callbacks import EMA, RunCheckpoint
from lit_gans.cli.commands import fit as lightning_cli
from lit_gans.cli.commands.train import _files
from lit_gans.config.build import resolve
from lit_gans.config.hydra_app import compose
from lit_gans.training.optim import OptimizerConfig
from tests.commands import TINY, TINY_CLI


@pytest.mark.runs
def test_the_lightning_cli_runs_an_exported_file_with_identical_values(ran, tmp_path):
    ran("train", *TINY, "trainer.max_steps=4", "seed=7", "hydra.run.dir=hydra")
    exported = yaml.safe_load(Path("hydra/run.yaml").read_text())
    assert exported["model"]["init_args"]["latent_dim"] == 8
    ran("fit", "-c", "hydra/run.yaml")
    one, other = (torch.load(f"{folder}/checkpoints/last.ckpt", weights_only=True) for folder in ("hydra", "hydra/fit"))
    torch.testing.assert_close(one["state_dict"], other["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(one["optimizer_states"], other["optimizer_states"], rtol=0, atol=0)
    assert one["hyper_parameters"] == other["hyper_parameters"]
    resumed = ("--ckpt_path", "hydra/checkpoints/last.ckpt", "--trainer.max_steps", "5")
    ran("fit", "-c", "hydra/run.yaml", *resumed)
    assert torch.load("hydra/fit/checkpoints/last.ckpt", weights_only=True)["global_step"] == 5


def test_an_exported_file_moves_only_what_the_run_writes():
    composed = compose("data=folder", "data.root=run/photos", "logger=csv", "trainer.default_root_dir=run")
    exported = yaml.safe_load(_files(composed, resolve(composed), None)["run.yaml"])
    assert exported["data"]["init_args"]["root"] == "run/photos"
    assert exported["trainer"]["default_root_dir"] == "run/fit"
    assert [logger["init_args"] for logger in exported["trainer"]["logger"]] == [{"save_dir": "run/fit"}]


def test_the_lightning_cli_on_class_names(ran, monkeypatch):
    seen = []
    monkeypatch.setattr(lightning_cli.GansCLI, "before_fit", lambda self: seen.append(self), raising=False)
    another = ["--data.image_size=16", "--data.channels=3", "--model.generator_optimizer", "RMSprop"]
    ran(*TINY_CLI, "--trainer.max_steps=2", *another)
    model, trainer = seen[0].model, seen[0].trainer
    assert trainer.global_step == 2
    assert (model.image_size, model.channels) == (16, 3), "linked from the data"
    assert model.generator_optimizer == OptimizerConfig("RMSprop"), "torch's defaults, not those of Adam here"
    assert model.discriminator_optimizer.options["betas"] == (0.5, 0.999)


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("--model.image_size=16", "use --data.image_size"),
        ("--trainer.max_steps=0", "trainer.max_steps=0 trains nothing"),
        ("--trainer.devices=1000", "on a CPU, devices are processes, and there are only"),
        ("--trainer.precision=16-mixed", "AMP with fp16 is not supported on CPU"),
    ],
)
def test_wrong_input_of_the_lightning_cli(refused, argument, sentence):
    assert sentence in refused(*TINY_CLI, argument)


def test_a_file_with_another_image_size_of_the_model_is_refused(refused, ran, tmp_path):
    model = {"class_path": "DCGAN", "init_args": {"image_size": 16, "generator_width": 4, "discriminator_width": 4}}
    file = {"model": model, "data": {"class_path": "Digits"}, "trainer": {"max_steps": 1, "logger": False}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(file))
    said = refused("fit", "-c", "run.yaml")
    assert "run.yaml: model.image_size is 16, but the model uses the value of the data, 32: set data.init_args" in said
    file["data"]["init_args"] = {"image_size": 16}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(file))
    ran("fit", "-c", "run.yaml", "--data.init_args.image_size=32", "--trainer.default_root_dir=mine")
    assert yaml.safe_load((tmp_path / "mine/config.yaml").read_text())["data"]["init_args"]["image_size"] == 32


def test_data_without_an_image_size_leave_that_of_the_model(ran, refused, tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(OWN_DATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {"class_path": "DCGAN", "init_args": {"image_size": 16, "generator_width": 4, "discriminator_width": 4}}
    trainer = {"max_steps": 1, "logger": False, "enable_checkpointing": False}
    file = {"model": model, "data": "own_data.OwnData", "trainer": trainer}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(file))
    ran("fit", "-c", "run.yaml")
    ran("fit", "-c", "run.yaml", "-c", "{trainer: {max_steps: 2}}")


OWN_DATA = """
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader


class OwnData(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(torch.zeros(8, 3, 16, 16), batch_size=4)
"""


def test_a_run_yaml_of_others_runs_no_code(refused, tmp_path):
    (tmp_path / "run.yaml").write_text("seed_everything: !!python/object/apply:os.system ['touch executed']\n")
    assert "Problems parsing config" in refused("fit", "-c", "run.yaml")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(("name", "required"), [("Digits", ()), ("PairedFolder", ("--data.root=here",))])
def test_the_lightning_cli_has_sources_by_their_names(ran, name, required):
    printed = yaml.safe_load(ran("fit", "--model", "Pix2Pix", "--data", name, *required, "--print_config"))["data"]
    assert printed["class_path"].endswith(f".{name}")
    assert {"image_size", "channels", "batch_size", "seed"} <= printed["init_args"].keys()


ARGUMENTS = "# a remark that a dump would not have\ntrainer: {max_steps: 1, logger: false}\n"


def test_a_file_of_arguments_is_not_replaced_by_what_the_run_writes(ran, tmp_path):
    (tmp_path / "config.yaml").write_text(ARGUMENTS)
    ran(*TINY_CLI, "-c", "config.yaml")
    assert (tmp_path / "config.yaml").read_text() == ARGUMENTS
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.yaml").write_text("a: 1\n")
    ran(*TINY_CLI, "-c", "config.yaml", "--trainer.default_root_dir=mine")
    assert (tmp_path / "mine/config-1.yaml").read_text() == "a: 1\n"
    assert yaml.safe_load((tmp_path / "mine/config.yaml").read_text())["trainer"]["max_steps"] == 1


def test_a_refused_run_of_the_lightning_cli_writes_no_configuration(ran, refused, tmp_path):
    checkpoints = ["--trainer.callbacks=RunCheckpoint", "--trainer.default_root_dir=mine", "--trainer.logger=false"]
    ran(*TINY_CLI, "--trainer.max_steps=1", *checkpoints)
    before = (tmp_path / "mine/config.yaml").read_text()
    said = refused(*TINY_CLI, "--trainer.max_steps=7", *checkpoints)
    assert "has the checkpoints of another run" in said
    assert (tmp_path / "mine/config.yaml").read_text() == before


def test_a_missing_checkpoint_is_refused_before_the_training(refused):
    assert "there is no checkpoint at nowhere.ckpt" in refused(*TINY_CLI, "--ckpt_path=nowhere.ckpt")


@pytest.mark.runs
def test_the_folder_of_a_run_is_resumed_from_its_newest_checkpoint(ran, monkeypatch):
    folder = ["--trainer.callbacks=RunCheckpoint", "--trainer.default_root_dir=mine"]
    ran(*TINY_CLI, "--trainer.max_steps=1", *folder)
    shutil.copy("mine/checkpoints/last.ckpt", "mine/checkpoints/best.ckpt")
    ran(*TINY_CLI, "--trainer.max_steps=2", *folder, "--ckpt_path=mine")
    resumed, start = [], RunCheckpoint.on_train_start

    def noted(self, trainer, *arguments):
        resumed.append(trainer.global_step)
        start(self, trainer, *arguments)

    monkeypatch.setattr(RunCheckpoint, "on_train_start", noted)
    ran(*TINY_CLI, "--trainer.max_steps=3", *folder, "--ckpt_path=mine")
    assert resumed == [2], "best.ckpt is of iteration 1"


def test_divergence_is_one_sentence_and_an_error_of_the_module_has_its_traceback(command, monkeypatch):
    def diverge(self, *arguments):
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(EMA, "on_train_batch_end", diverge)
    code, _, err = command(*TINY_CLI, "--trainer.callbacks=EMA")
    assert code == 1
    assert err.splitlines()[-1] == "lit-gans: the loss is nan"

    def fail(self, *arguments):
        raise ValueError("shapes of my own code")

    monkeypatch.setattr(EMA, "on_train_batch_end", fail)
    with pytest.raises(ValueError, match="shapes of my own code"):
        command(*TINY_CLI, "--trainer.callbacks=EMA")


def test_a_signal_is_in_the_exit_code_of_the_lightning_cli(command, monkeypatch):
    update = EMA.on_train_batch_end

    def update_then_signal(self, trainer, *arguments):
        update(self, trainer, *arguments)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(EMA, "on_train_batch_end", update_then_signal)
    callbacks = ["--trainer.callbacks=EMA", "--trainer.callbacks+=RunCheckpoint"]
    assert command(*TINY_CLI, "--trainer.max_steps=9", *callbacks)[0] == 128 + signal.SIGTERM
