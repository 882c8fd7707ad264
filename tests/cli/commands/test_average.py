"""`lit-gans average` on the snapshots of a run."""

import pytest
import torch

from lit_gans.callbacks import EMA, PowerEMA
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.config.load import load
from tests.commands import TINY


@pytest.fixture
def average(tiny_gan, random_images, fit, tmp_path):
    """The averages of a run of six iterations, whose last checkpoint is in the folder `run`."""
    callback = PowerEMA()
    root = {"default_root_dir": tmp_path / "run"}
    trainer = fit(tiny_gan(), random_images(), 6, callbacks=[callback, EMA()], **root)
    trainer.save_checkpoint(tmp_path / "run/checkpoints/last.ckpt")
    return callback.state_dict()["averages"][1]


def test_an_average_of_a_stored_width_is_the_stored_average(ran, average, tmp_path):
    assert ran("average", "run=run", "width=0.1") == (
        "average of DCGAN at iteration 6, width 0.1: run/average_0.1.ckpt\n  snapshots 6, error of the profile 0.00%\n"
    )
    module, last = load("run/average_0.1.ckpt"), load("run")
    torch.testing.assert_close(dict(module.averaged_generator.named_parameters()), average, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(module.state_dict(), last.state_dict(), rtol=0, atol=0)
    ran("sample", "checkpoint=run/average_0.1.ckpt", "num=4", "weights=ema")
    assert (tmp_path / "run/generated").is_dir()
    ran("export", "checkpoint=run/average_0.1.ckpt", "weights=ema", "output=mine")
    torch.testing.assert_close(load("mine").sample(2), module.sample(2), rtol=0, atol=0)


def test_another_width_and_output(ran, refused, average):
    ran("average", "run=run", "width=0.08", "output=new/mine.ckpt")
    content, last = read_checkpoint("new/mine.ckpt"), read_checkpoint("run")
    assert content["global_step"] == 6
    assert {*last} - {*content} == {"callbacks", "loops", "lr_schedulers", "optimizer_states"}
    assert not torch.equal(load("new/mine.ckpt").sample(1), load("run").sample(1))
    assert (
        "6 snapshots of widths 0.05, 0.1 give its profile only with an error of 56.0%: use a width closer"
        in refused("average", "run=run", "width=0.01")
    )
    said = refused("average", "run=run", "width=0.1", "output=run/checkpoints/last.ckpt")
    assert "output=run/checkpoints/last.ckpt: checkpoints/ is for checkpoints that resume a run" in said
    said = refused("train", *TINY, "resume=new/mine.ckpt")
    assert "new/mine.ckpt contains networks without their optimizers, as lit-gans average writes them: use init" in said
