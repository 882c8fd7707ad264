"""Whole runs as a user starts them: files, resuming bitwise, signals, several processes."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lit_gans import build, compose
from lit_gans.callbacks import InitFrom
from lit_gans.cli import train as train_module
from tests.commands import TINY, start

WHOLE = 43  # iterations: into the fifth epoch


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lit-gans", *TINY, f"trainer.max_steps={WHOLE}", f"hydra.run.dir={folder}"])
        assert train_module.main() == 0
    return folder


def read(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def losses(folder: Path) -> list[tuple[str, str, str]]:
    with (folder / "metrics.csv").open() as file:
        return [(row["step"], row["loss/generator"], row["loss/discriminator"]) for row in csv.DictReader(file)]


def assert_same_run(one: Path, other: Path) -> None:
    first, second = read(one), read(other)
    assert first["global_step"] == second["global_step"]
    for key in ("state_dict", "optimizer_states", "generator_ema", "lr_schedulers"):
        torch.testing.assert_close(first[key], second[key], rtol=0, atol=0)
    assert losses(one) == losses(other)


def test_a_run_writes_its_folder_and_the_next_one_another(train, tmp_path):
    assert train("experiment=dcgan_digits", *TINY[2:], "trainer.max_steps=3", "logger=default") == 0
    folder = tmp_path / "outputs" / "dcgan_digits" / "version_0"
    for name in ("config.yaml", "run.yaml", "metrics.csv", "checkpoints/last.ckpt"):
        assert (folder / name).is_file(), name
    assert sorted(path.name for path in (folder / "samples").iterdir()) == ["000000.png", "000003.png", "training.gif"]
    assert list((folder / "tensorboard").glob("events*"))
    assert "lit-gans sample checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt num=64" in train.out
    assert train(*TINY, "trainer.max_steps=1") == 0
    assert (tmp_path / "outputs" / "dcgan_digits_digits").exists() is False
    assert (tmp_path / "outputs" / "dcgan_digits" / "version_1").exists(), "model_data is the name without experiment"


def test_best_checkpoint_and_metrics(train, tmp_path):
    few = ["metrics=digits", "metrics.num_samples=40", "metrics.batch_size=20", "metrics.every_n_steps=2"]
    assert train(*TINY, *few, "trainer.max_steps=3", "hydra.run.dir=run") == 0
    best = torch.load(tmp_path / "run/checkpoints/best.ckpt", weights_only=True)
    with (tmp_path / "run/metrics.csv").open() as file:
        fids = {
            int(row["step"]): float(row["metric/fid_digits"])
            for row in csv.DictReader(file)
            if row["metric/fid_digits"]
        }
    assert sorted(fids) == [0, 2, 3]
    assert best["global_step"] == min((2, 3), key=fids.get), "iteration 0 is measured, not saved"
    assert "two halves of the real images" in train.out


@pytest.mark.parametrize("boundary", [1, 9, 10, 11, 20])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(train, tmp_path, whole, boundary, workers):
    if workers and boundary in (1, 20):
        pytest.skip("covered without workers")
    assert train(*TINY, f"data.num_workers={workers}", f"trainer.max_steps={boundary}", "hydra.run.dir=part") == 0
    again = [f"data.num_workers={workers}", f"trainer.max_steps={WHOLE}", "resume=part/checkpoints/last.ckpt"]
    assert train(*TINY, *again) == 0
    assert_same_run(whole, tmp_path / "part")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_resumes_bitwise(train, tmp_path, whole, workers):
    settings = [*TINY, f"trainer.max_steps={WHOLE}", "logger.csv.flush_every=1"]
    kill_at = random.randrange(7, WHOLE - 15)
    process = start(tmp_path, *settings, f"data.num_workers={workers}", "hydra.run.dir=outputs/dcgan_digits/version_0")
    metrics = tmp_path / "outputs/dcgan_digits/version_0/metrics.csv"
    while not metrics.is_file() or len(metrics.read_text().splitlines()) < kill_at:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    reached = read(metrics.parent)["global_step"]
    assert 5 <= reached < WHOLE, f"killed at {kill_at}"
    assert train(*settings, f"data.num_workers={workers}", "resume=auto") == 0
    assert_same_run(whole, metrics.parent)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_writes_a_checkpoint_at_the_next_boundary(tmp_path, number, code):
    settings = [*TINY, "trainer.max_steps=100000", "callbacks.checkpoint.every_n_train_steps=100000"]
    process = start(tmp_path, *settings, "logger.csv.flush_every=1", "hydra.run.dir=run")
    while not (tmp_path / "run/metrics.csv").is_file():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    step = read(tmp_path / "run")["global_step"]
    assert f"Stopped after {step} iterations" in output
    assert "resume=run/checkpoints/last.ckpt" in output
    assert "Traceback" not in output


def test_the_same_overrides_reach_every_process(tmp_path):
    """Single and as a sweep: rank 1 trained with default values in silence where its arguments were lost."""
    two = ["trainer.devices=2", "trainer.strategy=ddp_find_unused_parameters_true", "trainer.max_steps=2"]
    process = start(tmp_path, *TINY, *two, "-m", "model.latent_dim=5,6", "data.batch_size=20")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    for run, latent_dim in (("0", 5), ("1", 6)):
        checkpoint = read(tmp_path / "outputs/sweeps/version_0" / run)
        assert checkpoint["hyper_parameters"]["latent_dim"] == latent_dim
        assert checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]["images"] == 2 * 2 * 20


def test_torchrun_agrees_on_the_folder_and_refuses_another_configuration(tmp_path):
    two = ["trainer.devices=2", "trainer.strategy=ddp_find_unused_parameters_true", "trainer.max_steps=2"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*launcher, "-m", "lit_gans", "train", *TINY, *two, "data.batch_size=20"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "outputs/dcgan_digits").iterdir()] == ["version_0"]

    script = tmp_path / "differ.py"
    script.write_text(
        "import os, sys\nfrom lit_gans.cli import main as cli\n"
        "sys.argv += ['model.latent_dim=' + str(5 + int(os.environ['RANK']))]\ncli.main()\n"
    )
    command = [*launcher, str(script), "train", *TINY, *two, "data.batch_size=20"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0
    assert "rank 1 has model.latent_dim=6 where rank 0 has 5" in done.stderr
    assert not list(tmp_path.glob("outputs/dcgan_digits/version_1/checkpoints/*"))


def test_fine_tuning_begins_with_the_networks_of_a_checkpoint(train, tmp_path):
    assert train(*TINY, "trainer.max_steps=2", "hydra.run.dir=first") == 0
    path = "first/checkpoints/last.ckpt"
    module, _, trainer = build(compose(*TINY, f"init_from={path}", "seed=3"))
    next(callback for callback in trainer.callbacks if isinstance(callback, InitFrom)).setup(trainer, module, "fit")
    torch.testing.assert_close(module.state_dict(), read(tmp_path / "first")["state_dict"], rtol=0, atol=0)
    assert train(*TINY, f"init_from={path}", "trainer.max_steps=1", "hydra.run.dir=second") == 0
    assert read(tmp_path / "second")["global_step"] == 1


def test_resuming_other_data_is_refused(train):
    assert train(*TINY, "trainer.max_steps=2", "hydra.run.dir=first") == 0
    assert train(*TINY, "trainer.max_steps=4", "data.seed=1", "resume=first/checkpoints/last.ckpt") == 2
    assert "data with seed=0" in train.err
