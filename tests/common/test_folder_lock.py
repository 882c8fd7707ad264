"""Two trainings never write to one folder at once."""

import os
import signal

import pytest
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.callbacks import RunCheckpoint
from lit_gans.common import folder_lock
from lit_gans.common.errors import RefusedInput
from lit_gans.common.folder_lock import locked


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    monkeypatch.setattr(folder_lock, "_WAIT", 0.0)


def holder(folder):
    """Forks a process that holds the lock of a folder until it is killed."""
    heard, ready = os.pipe()
    pid = os.fork()
    if not pid:
        with locked(folder):
            os.write(ready, b".")
            signal.pause()
    assert os.read(heard, 1)
    return pid


def test_a_second_training_in_a_folder_is_refused_until_the_first_is_dead(tiny_gan, random_images, fit, tmp_path):
    pid = holder(tmp_path)

    def train(max_steps=1, resume=None):
        arguments = {"callbacks": [RunCheckpoint()], "enable_checkpointing": True}
        return fit(tiny_gan("gan"), random_images(), max_steps, resume, **arguments)

    try:
        with pytest.raises(
            RefusedInput, match="is in use by another training: wait until that training has ended, or use another"
        ):
            train()
        assert not [*tmp_path.iterdir()]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    train()
    train(2, tmp_path / "checkpoints/last.ckpt")
    assert [path.name for path in tmp_path.rglob("*")] == ["checkpoints", "last.ckpt"]


def test_a_training_that_fails_releases_the_folder(tiny_gan, random_images, fit, tmp_path):
    fails = LambdaCallback(on_train_batch_start=lambda *_: {}[in_use(tmp_path)])
    with pytest.raises(KeyError, match="True"):
        fit(tiny_gan("gan"), random_images(), 1, callbacks=[fails, RunCheckpoint()], enable_checkpointing=True)
    assert not in_use(tmp_path)


def test_one_process_locks_a_folder_once(tmp_path):
    run = tmp_path / "run"
    with locked(run):
        with locked(run):
            pass
        assert in_use(run)
    assert not in_use(run)


def in_use(folder):
    """Whether another process is refused."""
    pid = os.fork()
    if not pid:
        folder_lock._locked.clear()  # those of the parent
        try:
            with locked(folder):
                os._exit(0)
        except RefusedInput:
            os._exit(1)
    return os.waitpid(pid, 0)[1] != 0
