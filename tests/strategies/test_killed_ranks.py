"""Two ranks that are killed within an iteration go on bitwise under their strategy, and closely under another one."""

import signal
from functools import partial

import pytest
import torch

from lit_gans.checkpoints.locate import newest_good
from lit_gans.training.optim import OptimizerConfig
from tests.killed_runs import ADAM, assert_same, kill_process, results, train

from . import ranks
from .test_checkpoints import STRATEGIES

NAMES = [*STRATEGIES]
OPTIMIZERS = {
    "sgd": partial(OptimizerConfig, "SGD", lr=0.02, momentum=0.9),
    # without this `eps`, Adam divides rounding by rounding where gradients are as small as that
    "adam": partial(ADAM, eps=1e-2),
}
OTHERS = dict(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))


def on_a_rank(folder, strategy, optimizer="sgd", point=None, step=0):
    kind = OPTIMIZERS[optimizer]
    train(folder, "dcgan", 0, point, step, kill_process, world_size=2, strategy=STRATEGIES[strategy](), kind=kind)


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_go_on(tmp_path, name):
    whole, killed, other = (tmp_path / kind for kind in ("whole", "killed", "other"))
    for folder in (whole, killed, other):
        folder.mkdir()
    this = "tests.strategies.test_killed_ranks.on_a_rank"
    settings = {"strategy": name, "optimizer": "adam" if name == NAMES[1] else "sgd"}
    ranks.run(this, tmp_path, folder=whole, **settings)
    for folder in (killed, other):
        codes, printed, _ = ranks.launch(this, tmp_path, folder=folder, **settings, point="mid-n_critic", step=5)
        assert codes == [-signal.SIGKILL] * 2, printed
        assert newest_good(folder)[1] == 4
    ranks.run(this, tmp_path, folder=killed, **settings)
    assert_same(killed, whole)
    ranks.run(this, tmp_path, folder=other, **(settings | {"strategy": OTHERS[name]}))
    ours, theirs = (results(folder)[0] for folder in (other, whole))
    assert ours["global_step"] == theirs["global_step"]
    for key in ("state_dict", "generator_ema"):
        torch.testing.assert_close(ours[key], theirs[key], rtol=1e-6, atol=1e-6)


KILLS = [("mid-save", 2), ("epoch boundary", 3), ("mid-n_critic", 4), ("mid-evaluation", 6), ("mid-epoch", 7)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_go_on_after_a_kill_at_every_kind_of_point(tmp_path, name):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    this = "tests.strategies.test_killed_ranks.on_a_rank"
    for folder in (whole, killed):
        folder.mkdir()
    ranks.run(this, tmp_path, folder=whole, strategy=name)
    for point, step in KILLS:
        codes, printed, _ = ranks.launch(this, tmp_path, folder=killed, strategy=name, point=point, step=step)
        assert codes[0] == -signal.SIGKILL, printed
        assert codes[1], "a save is the work of rank 0, without which rank 1 fails"
    ranks.run(this, tmp_path, folder=killed, strategy=name)
    assert_same(killed, whole)
