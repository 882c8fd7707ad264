"""Checkpoints of networks in several pieces are those of one process: files of full tensors, and folders of shards."""

from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies import ranks

from .cells import Cell, train

ZERO2, ZERO3 = (partial(NetworkDeepSpeed, stage=stage) for stage in (2, 3))
WRITTEN = {
    "ddp": ("Autoencoder", NetworkDDP),
    "zero2": ("Autoencoder", ZERO2),
    "zero3": ("Distillation", ZERO3),
    "fsdp": ("Autoencoder", NetworkFSDP),
    "zero2 sharded": ("Autoencoder", partial(ZERO2, sharded_checkpoints=True)),
    "zero3 sharded": ("Distillation", partial(ZERO3, sharded_checkpoints=True)),
    "fsdp sharded": ("Distillation", partial(NetworkFSDP, sharded_checkpoints=True)),
}
RESUMED = {"ddp": "zero2", "zero2": "fsdp", "fsdp": "ddp", "zero2 sharded": "zero2 sharded"}
FIRST = ["zero2", "zero3 sharded", "fsdp sharded"]

pytestmark = pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode")


def saved(path, example, resume=None, **arguments):
    """Trains an example, saves it to a path, and returns the strategy."""
    save = LambdaCallback(on_train_end=lambda trainer, _: trainer.save_checkpoint(path))
    module = train(Cell(example, ""), callbacks=[save], resume=resume, **arguments)
    return module.trainer.strategy


def on_a_rank(where, names, resumed):
    for name in names:
        example, strategy = WRITTEN[name]
        saved(where / f"{name}.ckpt", example, devices=2, strategy=strategy())
    for name in resumed:
        example, strategy = WRITTEN[name]
        path = where / f"{RESUMED[name]}.ckpt"
        saved(where / f"{name} resumed.ckpt", example, resume=path, devices=2, strategy=strategy())


def check(folder, names, resumed=()):
    """Compares checkpoints that two ranks write with those of one process."""
    for example in ("Autoencoder", "Distillation"):
        saved(folder / f"{example}.ckpt", example, devices=1)
    saved(folder / "resumed.ckpt", "Autoencoder", resume=folder / "Autoencoder.ckpt", devices=1)
    ranks.run(f"{__name__}.on_a_rank", folder, where=folder, names=names, resumed=resumed)
    pairs = [(name, WRITTEN[name][0]) for name in names] + [(f"{name} resumed", "resumed") for name in resumed]
    near = partial(torch.testing.assert_close, rtol=0, atol=1e-6)
    for stems in pairs:
        found, alone = (read_checkpoint(folder / f"{stem}.ckpt") for stem in stems)
        near(found["state_dict"], alone["state_dict"])
        for one, other in zip(found["optimizer_states"], alone["optimizer_states"], strict=True):
            near(one["state"], other["state"])


@pytest.mark.ranks
def test_a_checkpoint_has_the_names_and_tensors_of_one_process(tmp_path):
    check(tmp_path, FIRST)


@pytest.mark.slow
def test_checkpoints_of_every_strategy_have_these_names_and_resume_under_another_strategy(tmp_path):
    check(tmp_path, [*WRITTEN], [*RESUMED])
