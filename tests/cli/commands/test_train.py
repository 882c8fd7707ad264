"""Complete runs as a user starts them: files, signals, several processes."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from lit_gans.callbacks import EMA
from tests.commands import TINY
from tests.strategies.ranks import execute, launch

ENDLESS = [*TINY, "trainer.max_steps=100000", "callbacks.checkpoint.every_n_train_steps=100000", "hydra.run.dir=run"]
TWO = ["trainer.devices=2", "trainer.strategy=ddp_find_unused_parameters_true", "trainer.max_steps=2"]


def read(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.runs
def test_a_run_writes_its_folder_and_the_next_one_another(train, tmp_path):
    assert train("experiment=dcgan_digits", *TINY[2:], "trainer.max_steps=3", "logger=default") == 0
    folder = tmp_path / "outputs" / "dcgan_digits" / "version_0"
    for name in ("config.yaml", "run.yaml", "metrics.csv", "checkpoints/last.ckpt"):
        assert (folder / name).is_file(), name
    assert sorted(path.name for path in (folder / "samples").iterdir()) == ["000000.png", "000003.png", "training.gif"]
    assert list((folder / "tensorboard").glob("events*"))
    assert "lit-gans sample checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt num=64" in train.out
    assert train(*TINY, "trainer.max_steps=1") == 0
    assert (tmp_path / "outputs" / "dcgan_digits" / "version_1").exists(), "model_data is the name without experiment"


@pytest.mark.runs
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_at_the_next_boundary(train, tmp_path, monkeypatch, number, code):
    update = EMA.on_train_batch_end

    def update_then_signal(self, trainer, *arguments):
        update(self, trainer, *arguments)
        if trainer.global_step == 3:
            signal.raise_signal(number)

    monkeypatch.setattr(EMA, "on_train_batch_end", update_then_signal)
    handler = signal.getsignal(number)
    assert train(*ENDLESS) == code
    assert "Stopped after 3 iterations" in train.out
    assert read(tmp_path / "run")["global_step"] == 3
    assert signal.getsignal(number) is handler


def test_a_second_training_in_the_folder_of_a_running_one_takes_nothing_from_it(train, tmp_path, monkeypatch):
    """It was refused, and removed every file that the first wrote meanwhile."""
    monkeypatch.setattr("lit_gans.common.folder_lock._WAIT", 0.5)
    (tmp_path / "run").mkdir()
    first = os.open(tmp_path / "run", os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    writing = threading.Timer(0.1, (tmp_path / "run/000001.png").touch)
    writing.start()
    assert train(*TINY, "trainer.max_steps=1", "hydra.run.dir=run") == 2
    writing.join()
    os.close(first)
    assert "run is in use by another training" in train.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["000001.png"]


@pytest.mark.faults  # Lightning starts two new interpreters
def test_the_same_overrides_reach_every_process(train, tmp_path):
    """Rank 1 silently trained with default values where its arguments were lost; the next run of a sweep took the
    variables of the first for those of a launcher.
    """
    before = dict(os.environ)
    assert train(*TINY, *TWO, "-m", "model.latent_dim=5,6", "data.batch_size=20") == 0
    for run, latent_dim in (("0", 5), ("1", 6)):
        checkpoint = read(tmp_path / "outputs/sweeps/version_0" / run)
        assert checkpoint["hyper_parameters"]["latent_dim"] == latent_dim
        assert checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]["images"] == 2 * 2 * 20
    assert dict(os.environ) == before
    assert not torch.distributed.is_initialized()


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_torchrun_agrees_on_the_folder(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*launcher, "-m", "lit_gans", "train", *TINY, *TWO, "data.batch_size=20"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "outputs/dcgan_digits").iterdir()] == ["version_0"]


def train_with_its_rank(arguments, cwd):
    execute([*arguments, f"model.latent_dim={5 + int(os.environ['RANK'])}"], cwd)


@pytest.mark.ranks
def test_ranks_of_different_configurations_are_refused(tmp_path):
    arguments = ["train", *TINY, *TWO, "data.batch_size=20"]
    codes, printed, _ = launch(
        "tests.cli.commands.test_train.train_with_its_rank", tmp_path, arguments=arguments, cwd=tmp_path
    )
    assert all(codes)
    assert "rank 1 has model.latent_dim=6, but rank 0 has 5" in "".join(printed)
    assert not list(tmp_path.glob("outputs/dcgan_digits/version_0/checkpoints/*"))


@pytest.mark.runs
def test_fine_tuning_begins_with_the_networks_of_a_checkpoint(train, tmp_path):
    assert train(*TINY, "trainer.max_steps=2", "hydra.run.dir=first") == 0
    path = "first/checkpoints/last.ckpt"
    assert train(*TINY, f"init_from={path}", "trainer.max_steps=1", "hydra.run.dir=second") == 0
    assert "init_from: generator: 100% of the weights" in train.err
    (tmp_path / "first").rename(tmp_path / "elsewhere")  # a resumed run has networks of its own
    resumed = ("trainer.max_steps=2", "hydra.run.dir=second", "resume=auto")
    assert train(*TINY, f"init_from={path}", *resumed) == 0, train.err
    assert read(tmp_path / "second")["global_step"] == 2
    assert "init_from" not in train.err


@pytest.mark.slow
@pytest.mark.parametrize("gan", ["r3gan", "dcgan", "sngan", "wgan_gp", "d2gan"])
def test_the_thousand_modes_are_trained_and_counted(train, gan):
    small = ["model.generator_width=8", "model.discriminator_width=8", "data.num_images=512", "metrics.num_samples=64"]
    assert train(f"experiment={gan}_stacked", *small, "trainer.max_steps=3", "trainer.accelerator=cpu") == 0
    assert "modes_covered" in train.out


def test_an_error_while_running_is_no_mistake_of_the_command_line(train, monkeypatch):
    def fails(*_):
        raise ValueError("of the job")

    monkeypatch.setattr("lit_gans.cli.commands.train.fit", fails)
    with pytest.raises(ValueError, match="of the job"):
        train(*TINY, "trainer.max_steps=1")


def test_a_refused_run_removes_the_folders_that_it_has_made_and_no_others(train, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (".", "empty", "new/deep/run"):
        assert train(*TINY, f"hydra.run.dir={folder}", "model.n_critic=0") == 2
        assert {path.name for path in tmp_path.iterdir()} == {"empty"}


def test_a_refused_run_at_an_address_removes_no_folder_of_the_user(train, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    address = ("trainer.default_root_dir=mine", f"hydra.run.dir=file://{tmp_path}/remote")
    assert train(*TINY, *address, "model.n_critic=0") == 2
    assert "leave out trainer.default_root_dir" in train.err
    assert (tmp_path / "mine/thesis.txt").is_file()
    assert train(*TINY, address[1], "model.n_critic=0") == 2
    assert {path.name for path in tmp_path.iterdir()} <= {"mine", "remote"}


@pytest.mark.runs
def test_files_of_a_user_with_the_names_of_the_run_s_are_kept(train, tmp_path):
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    assert train(*TINY, "trainer.max_steps=1", "hydra.run.dir=.") == 0
    assert (tmp_path / "config-1.yaml").read_text() == "mine: 1\n"
    assert "dcgan" in (tmp_path / "config.yaml").read_text().lower()
    assert train(*TINY, "trainer.max_steps=2", "hydra.run.dir=.", "resume=auto") == 0
    assert not (tmp_path / "config-2.yaml").exists(), "a run that continues replaces its own"


def test_a_tilde_is_the_home_folder(train, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert train(*TINY, "trainer.max_steps=1", "hydra.run.dir=~/runs/x") == 0
    assert (tmp_path / "home/runs/x/checkpoints/last.ckpt").is_file()
    assert not (tmp_path / "~").exists()
