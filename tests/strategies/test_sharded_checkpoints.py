"""Checkpoints of parts: written by two ranks, resumed by them, read on one process."""

import pytest
import torch

from lit_gans import load
from lit_gans.checkpoints import read_checkpoint
from lit_gans.errors import RefusedInput
from lit_gans.strategies.deepspeed import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .test_checkpoints import MOMENTUM, assert_same, train

STRATEGIES = {
    "fsdp": lambda sharded=True: NetworkFSDP(sharded_checkpoints=sharded),
    **{
        f"deepspeed_{stage}": lambda sharded=True, stage=stage: NetworkDeepSpeed(
            stage=stage, sharded_checkpoints=sharded
        )
        for stage in (2, 3)
    },
}


def on_a_rank(where):
    """Trains 2 iterations into a folder, over an older one, and goes on from it; the end is written as a file."""
    said = {}
    for name, strategy in STRATEGIES.items():
        for steps in (1, 2):
            train(where / f"{name}.ckpt", steps, MOMENTUM, world_size=2, strategy=strategy())
        resumed = {"resume": where / f"{name}.ckpt", "world_size": 2}
        train(where / f"{name}_resumed.ckpt", 4, MOMENTUM, **resumed, strategy=strategy(sharded=False))
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
    train(folder / "whole.ckpt", 4, MOMENTUM)
    (folder / "said.pt").touch()
    torch.save(
        ranks.run("tests.strategies.test_sharded_checkpoints.on_a_rank", folder, where=folder), folder / "said.pt"
    )
    return folder


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_go_on_as_if_uninterrupted(folder, name):
    assert (folder / f"{name}.ckpt").is_dir()
    assert (folder / f"{name}_resumed.ckpt").is_file()
    assert_same(folder / f"{name}_resumed.ckpt", folder / "whole.ckpt")
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


def test_one_process_goes_on_from_parts_of_fsdp(folder, tmp_path):
    train(tmp_path / "resumed.ckpt", 4, MOMENTUM, resume=folder / "fsdp.ckpt")
    assert_same(tmp_path / "resumed.ckpt", folder / "whole.ckpt")


def test_what_cannot_resume_is_refused(folder, tmp_path):
    with pytest.raises(RefusedInput, match="resume with strategy=deepspeed, the same stage and number of ranks"):
        train(tmp_path / "resumed.ckpt", 4, MOMENTUM, resume=folder / "deepspeed_2.ckpt")
    for said in torch.load(folder / "said.pt"):
        assert "was written under stage 2 by 2 ranks, and these are stage 1 and 2" in said["other stage"]


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(RefusedInput, match=r"is no sharded checkpoint: it has no rest.pt"):
        read_checkpoint(tmp_path)
