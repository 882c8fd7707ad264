"""A training that a signal asks to stop writes a checkpoint at the next boundary, from which it goes on bitwise."""

import os
import random
import signal

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import RunCheckpoint
from lit_gans.config.registry import gans
from tests.killed_runs import POINTS, STEPS, Signal, assert_same, train, trained_once

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NNODES": "1",
    "SLURM_NODELIST": "127.0.0.1",
}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return trained_once(tmp_path_factory)


def boundary(point, step):
    """The first boundary after a point of `Kill`."""
    if point == "first evaluation":
        return 1
    if point == "epoch boundary":  # three iterations in an epoch; the signal comes after the hook that looks
        return -(-step // 3) * 3 + 1
    if point == "mid-epoch":
        return step + 1 if step % 3 else step + 2
    if point == "mid-evaluation":
        return -(-step // 3) * 3
    return step + 1 if point == "mid-n_critic" else -(-step // 2) * 2 + 1


def stop_and_resume(folder, name, point, step, number):
    handlers = [signal.getsignal(each) for each in SIGNALS]
    trainer = train(folder, name, 0, point, step, Signal(number))
    reached = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"]
    checkpoint = next(each for each in trainer.callbacks if isinstance(each, RunCheckpoint))
    assert (reached, trainer.global_step, checkpoint.received_signal) == (boundary(point, step),) * 2 + (number,)
    assert [signal.getsignal(each) for each in SIGNALS] == handlers
    train(folder, name)
    return reached


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("first evaluation", signal.SIGTERM),
        ("mid-n_critic", signal.SIGINT),
        ("mid-evaluation", signal.SIGTERM),
        ("mid-save", signal.SIGINT),
    ],
)
def test_a_stopped_training_resumes_bitwise(tmp_path, uninterrupted, point, number):
    reached = stop_and_resume(tmp_path, "gan", point, 4, number)
    assert_same(tmp_path, uninterrupted("gan"), reached)


@pytest.mark.faults
@pytest.mark.parametrize("name", sorted(gans()))
def test_every_gan_stops_at_random_points(tmp_path, uninterrupted, name):
    draw = random.Random(name)
    for number in range(2):
        point = draw.choice((*POINTS, "first evaluation"))
        folder = tmp_path / str(number)
        reached = stop_and_resume(folder, name, point, draw.randint(1, STEPS - 3), draw.choice(SIGNALS))
        assert_same(folder, uninterrupted(name), reached)


def test_a_second_ctrl_c_ends_the_training_at_once(tiny_gan, random_images, fit, tmp_path, capfd):
    passed = []

    def twice(*_):
        for number in (1, 2):
            signal.raise_signal(signal.SIGINT)
            passed.append(number)

    callbacks = [LambdaCallback(on_train_batch_start=twice), RunCheckpoint()]
    with pytest.raises(SystemExit) as end:
        fit(tiny_gan("gan"), random_images(), 5, callbacks=callbacks, enable_checkpointing=True)
    assert isinstance(end.value.__context__, KeyboardInterrupt)
    assert passed == [1]
    assert capfd.readouterr().err.count("Ctrl-C: the training stops after this iteration, with a checkpoint") == 1
    assert not (tmp_path / "checkpoints").exists()


def test_after_a_training_that_failed_the_signal_takes_effect(tiny_gan, random_images, fit):
    """Lightning restores the handlers that it found, which are ours."""

    callbacks = [LambdaCallback(on_train_batch_start=lambda *_: {}["of the test"]), RunCheckpoint()]
    with pytest.raises(KeyError, match="of the test"):
        fit(tiny_gan("gan"), random_images(), 5, callbacks=callbacks, enable_checkpointing=True)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """Puts a command `scontrol` on the path and returns the file to which it writes what it is called with."""
    called, command = tmp_path / "called", tmp_path / "bin/scontrol"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho $* >> {called}\nexit ${{SCONTROL_CODE:-0}}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    return called


@pytest.mark.parametrize("array", [{}, {"SLURM_ARRAY_JOB_ID": "47", "SLURM_ARRAY_TASK_ID": "3"}])
def test_slurm_queues_the_job_again_after_a_checkpoint_at_the_boundary(
    slurm, tmp_path, uninterrupted, monkeypatch, array
):
    for name, value in array.items():
        monkeypatch.setenv(name, value)
    reached = stop_and_resume(tmp_path / "run", "gan", "mid-n_critic", 4, signal.SIGUSR1)
    assert slurm.read_text() == f"requeue {'47_3' if array else 4711}\n", "once, and not by the resumed run"
    assert_same(tmp_path / "run", uninterrupted("gan"), reached)
    assert not [*tmp_path.rglob("hpc_ckpt*")], "Lightning's own would be written within an iteration"


def test_a_job_that_cannot_be_queued_again_has_its_checkpoint_and_a_warning(slurm, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SCONTROL_CODE", "1")
    train(tmp_path / "run", "gan", 0, "mid-epoch", 4, Signal(signal.SIGUSR1))
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] == 5
    assert "job 4711 could not be requeued" in caplog.text


def test_without_slurm_the_signal_is_left_alone(tiny_gan, random_images, fit):
    seen = []
    look = LambdaCallback(on_train_batch_start=lambda *_: seen.append(signal.getsignal(signal.SIGUSR1)))
    fit(tiny_gan("gan"), random_images(), 1, callbacks=[look, RunCheckpoint()], enable_checkpointing=True)
    assert seen == [signal.SIG_DFL]
