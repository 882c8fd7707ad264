"""Complete runs as a user starts them: files, resuming bitwise, signals, several processes."""

import csv
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from lit_gans import build, compose
from lit_gans.callbacks import EMA, InitFrom
from lit_gans.cli import main as cli
from tests.commands import TINY, start, wait_until
from tests.strategies.ranks import execute, launch

MAX_STEPS = 23  # iterations: into the third epoch


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert cli.run(["train", *TINY, f"trainer.max_steps={MAX_STEPS}", f"hydra.run.dir={folder}"]) == 0
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
    assert not list(tmp_path.rglob("table.md")), "which sweeps have"
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
    assert f"at iteration {best['global_step']}, the best of the trained networks)" in train.out
    assert "two halves of the real images" in train.out


@pytest.mark.parametrize(
    ("boundary", "workers"),
    [
        (9, 0),
        (11, 2),
        *(pytest.param(boundary, 0, marks=pytest.mark.slow) for boundary in (1, 10, 11, 20)),
        *(pytest.param(boundary, 2, marks=pytest.mark.slow) for boundary in (9, 10)),
    ],
)
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(train, tmp_path, uninterrupted, boundary, workers):
    assert (
        train(*TINY, f"data.num_workers={workers}", f"trainer.max_steps={boundary}", "hydra.run.dir=interrupted") == 0
    )
    again = [
        f"data.num_workers={workers}",
        f"trainer.max_steps={MAX_STEPS}",
        "resume=interrupted/checkpoints/last.ckpt",
    ]
    assert train(*TINY, *again) == 0
    assert_same_run(uninterrupted, tmp_path / "interrupted")


@pytest.mark.faults
@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_resumes_bitwise(train, tmp_path, uninterrupted, workers):
    settings = [*TINY, f"trainer.max_steps={MAX_STEPS}"]
    kill_at = random.randrange(7, MAX_STEPS - 5)
    process = start(tmp_path, *settings, f"data.num_workers={workers}", "hydra.run.dir=outputs/dcgan_digits/version_0")
    metrics = tmp_path / "outputs/dcgan_digits/version_0/metrics.csv"
    wait_until(lambda: metrics.is_file() and len(metrics.read_text().splitlines()) >= kill_at, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    reached = read(metrics.parent)["global_step"]
    assert 5 <= reached < MAX_STEPS, f"killed at {kill_at}"
    assert train(*settings, f"data.num_workers={workers}", "resume=auto") == 0
    assert_same_run(uninterrupted, metrics.parent)


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
ENDLESS = [*TINY, "trainer.max_steps=100000", "callbacks.checkpoint.every_n_train_steps=100000", "hydra.run.dir=run"]


def assert_stopped(folder, output):
    step = read(folder)["global_step"]
    assert f"Stopped after {step} iterations" in output
    assert "resume=run/checkpoints/last.ckpt" in output
    assert "Traceback" not in output
    return step


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_the_run_at_the_next_boundary(train, tmp_path, monkeypatch, number, code):
    update = EMA.on_train_batch_end

    def update_then_signal(self, trainer, *arguments):
        update(self, trainer, *arguments)
        if trainer.global_step == 3:
            signal.raise_signal(number)

    monkeypatch.setattr(EMA, "on_train_batch_end", update_then_signal)
    handler = signal.getsignal(number)
    assert train(*ENDLESS) == code
    assert assert_stopped(tmp_path / "run", train.out + train.err) == 3
    assert signal.getsignal(number) is handler


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_to_the_process_writes_a_checkpoint(tmp_path, number, code):
    process = start(tmp_path, *ENDLESS)
    wait_until((tmp_path / "run/metrics.csv").is_file, process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == code, output
    assert_stopped(tmp_path / "run", output)


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


@pytest.mark.faults
def test_a_second_process_in_the_folder_of_a_running_training_takes_nothing_from_it(train, tmp_path):
    grids = tmp_path / "run/samples"
    first = start(tmp_path, *ENDLESS, "callbacks.samples.every_n_steps=1")
    try:
        wait_until((grids / "000001.png").is_file, first)
        before = len([*grids.iterdir()])
        assert train(*TINY, "trainer.max_steps=1", "hydra.run.dir=run") == 2
        assert "run is in use by another training" in train.err
        assert first.poll() is None
        numbers = sorted(int(path.stem) for path in grids.glob("[0-9]*.png"))  # not one that is being written
        assert numbers == [*range(len(numbers))], "no grid is missing"
        assert len(numbers) > before
    finally:
        first.kill()
        first.communicate()


TWO = ["trainer.devices=2", "trainer.strategy=ddp_find_unused_parameters_true", "trainer.max_steps=2"]


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
    codes, printed, _ = launch("tests.cli.test_train.train_with_its_rank", tmp_path, arguments=arguments, cwd=tmp_path)
    assert all(codes)
    assert "rank 1 has model.latent_dim=6 where rank 0 has 5" in "".join(printed)
    assert not list(tmp_path.glob("outputs/dcgan_digits/version_0/checkpoints/*"))


def test_fine_tuning_begins_with_the_networks_of_a_checkpoint(train, tmp_path):
    assert train(*TINY, "trainer.max_steps=2", "hydra.run.dir=first") == 0
    path = "first/checkpoints/last.ckpt"
    module, _, trainer = build(compose(*TINY, f"init_from={path}", "seed=3"))
    next(callback for callback in trainer.callbacks if isinstance(callback, InitFrom)).setup(trainer, module, "fit")
    torch.testing.assert_close(module.state_dict(), read(tmp_path / "first")["state_dict"], rtol=0, atol=0)
    assert train(*TINY, f"init_from={path}", "trainer.max_steps=1", "hydra.run.dir=second") == 0
    assert read(tmp_path / "second")["global_step"] == 1
    (tmp_path / "first").rename(tmp_path / "elsewhere")  # a resumed run has networks of its own
    resumed = ("trainer.max_steps=2", "hydra.run.dir=second", "resume=auto")
    assert train(*TINY, f"init_from={path}", *resumed) == 0, train.err
    assert read(tmp_path / "second")["global_step"] == 2
    assert "init_from" not in train.err
    (tmp_path / "elsewhere").rename(tmp_path / "first")
    before = read(tmp_path / "first")["state_dict"]
    assert train(*TINY, "model.generator_width=8", f"init_from={path}") == 2
    assert "0% of the generator fit the checkpoint (generator_width=4 there, 8 here)" in train.err
    torch.testing.assert_close(read(tmp_path / "first")["state_dict"], before, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("gan", ["r3gan", "dcgan", "sngan", "wgan_gp", "d2gan"])
def test_the_thousand_modes_are_trained_and_counted(train, gan):
    small = ["model.generator_width=8", "model.discriminator_width=8", "data.num_images=512", "metrics.num_samples=64"]
    assert train(f"experiment={gan}_stacked", *small, "trainer.max_steps=3", "trainer.accelerator=cpu") == 0
    assert "modes_covered" in train.out


def test_an_error_while_running_is_no_mistake_of_the_command_line(train, monkeypatch):
    def fails(*_):
        raise ValueError("of the job")

    monkeypatch.setattr("lit_gans.cli.train.fit", fails)
    with pytest.raises(ValueError, match="of the job"):
        train(*TINY, "trainer.max_steps=1")
