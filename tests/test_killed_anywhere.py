"""A training that is killed anywhere and goes on by itself ends bitwise as an uninterrupted one."""

import os
import shutil
import signal

import pytest

from lit_gans.callbacks import RunCheckpoint
from lit_gans.callbacks.kept_checkpoints import RecentCheckpoints
from lit_gans.checkpoints.locate import newest_good
from lit_gans.config.registry import gans
from tests import killed_runs
from tests.killed_runs import POINTS, Killed, assert_same, raise_killed, train, trained_once
from tests.strategies import ranks

GANS = sorted(gans())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return trained_once(tmp_path_factory)


def kill_and_resume(folder, name, point, step, workers, kill=None):
    """Ends a training by an error that nothing handles or, with a function `kill`, by SIGKILL, and resumes it."""
    if kill is None:
        with pytest.raises(Killed):
            train(folder, name, workers, point, step)
    else:
        kill(folder=folder, name=name, workers=workers, point=point, step=step)
    train(folder, name, workers)


@pytest.fixture
def sigkill(tmp_path):
    """Trains in a process of its own, which SIGKILL ends."""

    def kill(folder, **point):
        folder.mkdir(exist_ok=True)
        place = tmp_path if folder != tmp_path else tmp_path.parent
        codes, printed, _ = ranks.start("tests.killed_runs.killed", place, [dict(os.environ)], folder=folder, **point)
        assert codes == [-signal.SIGKILL], printed

    return kill


@pytest.mark.parametrize(
    "point",
    ["mid-n_critic", *(pytest.param(point, marks=pytest.mark.faults) for point in POINTS if point != "mid-n_critic")],
)
def test_a_killed_training_resumes_bitwise(tmp_path, uninterrupted, point):
    kill_and_resume(tmp_path, "wgan_gp", point, 4, workers=0)
    assert_same(tmp_path, uninterrupted("wgan_gp"))


PRODUCT = [
    # among the faults, each GAN and each number of workers meets every other point, and each point half of the GANs
    pytest.param(name, point, workers, marks=pytest.mark.slow if (row + column + workers) % 4 else pytest.mark.faults)
    for row, name in enumerate(GANS)
    for column, point in enumerate(POINTS)
    for workers in (0, 2)
]


@pytest.mark.parametrize(("name", "point", "workers"), PRODUCT)
def test_every_killed_gan_resumes_bitwise(tmp_path, uninterrupted, sigkill, name, point, workers):
    kill_and_resume(tmp_path, name, point, 4, workers, sigkill)
    assert_same(tmp_path, uninterrupted(name))


@pytest.mark.faults
def test_two_kills_in_one_training(tmp_path, uninterrupted):
    for point, step in (("mid-save", 2), ("mid-n_critic", 5), ("mid-save", 6)):
        with pytest.raises(Killed):
            train(tmp_path, "wgan_gp", 0, point, step)
    train(tmp_path, "wgan_gp")
    assert_same(tmp_path, uninterrupted("wgan_gp"))


@pytest.mark.faults
def test_a_kill_right_after_a_checkpoint_loses_no_row(tmp_path, uninterrupted, monkeypatch):
    """Lightning hands the row of the iteration to loggers only after that."""
    with monkeypatch.context() as patched:
        patched.setattr(RecentCheckpoints, "update", raise_killed)
        with pytest.raises(Killed):
            train(tmp_path, "wgan_gp")
    assert newest_good(tmp_path)[1] == 2
    train(tmp_path, "wgan_gp")
    assert_same(tmp_path, uninterrupted("wgan_gp"))


def test_a_kill_before_a_checkpoint_was_kept_does_not_lose_it(tmp_path, monkeypatch):
    kept = {"checkpoint": RunCheckpoint(every_n_train_steps=2, keep_every_n_train_steps=2)}
    monkeypatch.setattr(killed_runs, "RunCheckpoint", lambda **_: kept["checkpoint"])
    with monkeypatch.context() as patched:
        patched.setattr(RecentCheckpoints, "update", raise_killed)
        with pytest.raises(Killed):
            train(tmp_path, "dcgan")
    kept["checkpoint"] = RunCheckpoint(every_n_train_steps=2, keep_every_n_train_steps=2)
    train(tmp_path, "dcgan")
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*"))
    assert names == [f"step-{step:08d}.ckpt" for step in (2, 4, 6, 8)]


@pytest.mark.faults
def test_a_moved_run_resumes(tmp_path, uninterrupted):
    with pytest.raises(Killed):
        train(tmp_path / "here", "wgan_gp", 0, "mid-n_critic", 5)
    shutil.move(tmp_path / "here", tmp_path / "elsewhere/there")
    train(tmp_path / "elsewhere/there", "wgan_gp")
    assert_same(tmp_path / "elsewhere/there", uninterrupted("wgan_gp"))
    assert not (tmp_path / "here").exists()
