"""Checkpoints of shards: written by two ranks, resumed by them, read on one process."""

import shutil
from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from lit_gans import load
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .own_modules import Own
from .test_checkpoints import MOMENTUM, SaveAtEnd, assert_same, train

STRATEGIES = {"fsdp": NetworkFSDP, **{f"deepspeed_{n}": partial(NetworkDeepSpeed, stage=n) for n in (2, 3)}}
EXCHANGED = {"file": ["fsdp", "deepspeed_2"], "folder": ["fsdp", "deepspeed_3"]}  # kinds of checkpoints at the end


class Counting(Own):
    """A module with buffers of its own, and of a child that has nothing to train."""

    def __init__(self):
        super().__init__()
        self.register_buffer("images", torch.zeros(()))
        self.statistics = nn.BatchNorm1d(4, affine=False)

    def training_step(self, batch, batch_idx):
        self.images += len(batch[0])
        self.statistics(batch[0])
        super().training_step(batch, batch_idx)


def count(path, iterations, strategy, resume=None):
    """Trains to an iteration, saves, and returns the buffers outside the networks."""
    module = Counting()
    switches = ("logger", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_steps=2 * iterations,  # of two optimizers
        max_epochs=-1,
        accelerator="cpu",
        devices=2,
        use_distributed_sampler=False,
        callbacks=[SaveAtEnd(path)],
        strategy=strategy,
        **dict.fromkeys(switches, False),
    )
    trainer.fit(module, ckpt_path=resume, weights_only=True)
    return dict(module.named_buffers())


def on_a_rank(where):
    """Trains 2 iterations into a folder, over an older one, and goes on from it; the end is written as a file."""
    said = {"buffers": {}}
    for name, strategy in STRATEGIES.items():
        for steps in (1, 2):
            sharded = {"world_size": 2, "strategy": strategy(sharded_checkpoints=True)}
            train(where / f"{name}.ckpt", steps, MOMENTUM, **sharded)
        resumed = {"resume": where / f"{name}.ckpt", "world_size": 2}
        train(where / f"{name}_resumed.ckpt", 4, MOMENTUM, **resumed, strategy=strategy())
        for kind in (kind for kind, names in EXCHANGED.items() if name in names):  # that takes the place of the other
            path = where / f"{name}_{kind}" / "last.ckpt"
            before, after = (strategy(sharded_checkpoints=kind == other) for other in ("file", "folder"))
            train(path, 2, MOMENTUM, world_size=2, strategy=before)
            train(path, 4, MOMENTUM, resume=path, world_size=2, strategy=after)
        path = where / f"{name}_counted.ckpt"
        count(path, 2, strategy(sharded_checkpoints=True))
        said["buffers"][name] = count(path, 4, strategy(sharded_checkpoints=True), resume=path)
    try:
        resumed = {"resume": where / "deepspeed_2.ckpt", "world_size": 2}
        train(where / "other.ckpt", 4, MOMENTUM, **resumed, strategy=NetworkDeepSpeed(stage=1))
    except RefusedInput as refused:
        said["other stage"] = str(refused)
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    train(folder / "one.ckpt", 2, MOMENTUM)
    train(folder / "uninterrupted.ckpt", 4, MOMENTUM)
    torch.save(ranks.run(f"{__name__}.on_a_rank", folder, where=folder), folder / "said.pt")
    return folder


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_go_on_as_if_uninterrupted(folder, name):
    assert (folder / f"{name}.ckpt").is_dir()
    assert (folder / f"{name}_resumed.ckpt").is_file()
    assert_same(folder / f"{name}_resumed.ckpt", folder / "uninterrupted.ckpt")
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_networks_load_on_one_process(folder, name):
    found, alone = (read_checkpoint(folder / f"{n}.ckpt") for n in (name, "one"))
    assert found["global_step"] == 2
    assert found["state_dict"].keys() == alone["state_dict"].keys()
    for key, value in alone["state_dict"].items():
        torch.testing.assert_close(found["state_dict"][key], value, rtol=1e-5, atol=1e-6)
    samples = (load(folder / f"{n}.ckpt").sample(3) for n in (name, "one"))
    torch.testing.assert_close(*samples, rtol=1e-4, atol=1e-5)


def test_one_process_resumes_from_shards_of_fsdp(folder, tmp_path):
    train(tmp_path / "resumed.ckpt", 4, MOMENTUM, resume=folder / "fsdp.ckpt")
    assert_same(tmp_path / "resumed.ckpt", folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", EXCHANGED["file"])
def test_a_file_takes_the_place_of_the_folder_it_resumes_from(folder, name):
    path = folder / f"{name}_file" / "last.ckpt"
    assert [*path.parent.iterdir()] == [path]
    assert path.is_file()
    assert_same(path, folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", EXCHANGED["folder"])
def test_a_folder_takes_the_place_of_the_file_it_resumes_from(folder, name):
    path = folder / f"{name}_folder" / "last.ckpt"
    assert [*path.parent.iterdir()] == [path]
    assert path.is_dir()
    found, uninterrupted = read_checkpoint(path), torch.load(folder / "uninterrupted.ckpt", weights_only=True)
    assert found["global_step"] == uninterrupted["global_step"] == 4
    torch.testing.assert_close(found["state_dict"], uninterrupted["state_dict"], rtol=1e-5, atol=1e-6)


def test_one_process_puts_a_file_in_the_place_of_the_folder_it_resumes_from(folder, tmp_path):
    path = tmp_path / "last.ckpt"
    shutil.copytree(folder / "fsdp.ckpt", path)
    train(path, 4, MOMENTUM, resume=path)
    assert [*tmp_path.iterdir()] == [path]
    assert path.is_file()
    assert_same(path, folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", STRATEGIES)
def test_buffers_outside_the_networks_are_resumed(folder, name):
    saved = read_checkpoint(folder / f"{name}_counted.ckpt")["state_dict"]
    assert saved.keys() == Counting().state_dict().keys()
    for buffers in (said["buffers"][name] for said in torch.load(folder / "said.pt")):
        assert buffers["images"] == 8, "2 images in each of 4 iterations"
        assert buffers["statistics.num_batches_tracked"] == 4
        for key, value in buffers.items():
            torch.testing.assert_close(saved[key], value, rtol=0, atol=0)


def test_what_cannot_resume_is_refused(folder, tmp_path):
    with pytest.raises(RefusedInput, match="resume with strategy=deepspeed, the same stage and number of ranks"):
        train(tmp_path / "resumed.ckpt", 4, MOMENTUM, resume=folder / "deepspeed_2.ckpt")
    for said in torch.load(folder / "said.pt"):
        assert "was written under stage 2 by 2 ranks, and this run has stage 1 and 2 ranks" in said["other stage"]


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(RefusedInput, match=r"is neither the folder of a run nor a sharded checkpoint"):
        read_checkpoint(tmp_path)
