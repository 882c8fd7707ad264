"""Checkpoints of shards: folders that two ranks write, from which any strategy goes on, and which one process reads."""

import json
import shutil
from functools import partial

import pytest

from lit_gans.checkpoints.sharded import COMMIT
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .test_checkpoints import ADAM, assert_same, train

STRATEGIES = {"fsdp": NetworkFSDP, **{f"deepspeed_{n}": partial(NetworkDeepSpeed, stage=n) for n in (2, 3)}}
GOES_ON = {"fsdp": "deepspeed_3", "deepspeed_2": "fsdp", "deepspeed_3": "deepspeed_2"}


def on_a_rank(where):
    """Trains 2 iterations into a folder, over an older one, and goes on from it under another strategy."""
    for name, strategy in STRATEGIES.items():
        for steps in (1, 2):
            train(where / f"{name}.ckpt", steps, ADAM, world_size=2, strategy=strategy(sharded_checkpoints=True))
    for name, other in GOES_ON.items():
        path = where / f"{name}_resumed.ckpt"
        train(path, 4, ADAM, resume=where / f"{name}.ckpt", world_size=2, strategy=STRATEGIES[other]())
    path, resume = where / "exchanged" / "last.ckpt", None
    for steps, sharded in ((2, False), (3, True), (4, False)):  # each takes the place of the other
        strategy = NetworkFSDP(sharded_checkpoints=sharded)
        train(path, steps, ADAM, resume=resume, world_size=2, strategy=strategy)
        assert path.is_dir() == sharded
        resume = path
    there = f"file://{where}/there"
    for name, strategy in STRATEGIES.items():
        for steps in (1, 2):
            train(f"{there}/{name}.ckpt", steps, ADAM, world_size=2, strategy=strategy(sharded_checkpoints=True))
            if steps == 1:
                (
                    where / "there" / f"{name}.ckpt" / "shard-00003-model-00003-of-00003.safetensors"
                ).touch()  # of more ranks
    train(f"{there}/file.ckpt", 2, ADAM, world_size=2, strategy=NetworkFSDP())
    for name, other in (GOES_ON | {"file": "fsdp"}).items():
        path = where / f"{name}_from_there.ckpt"
        train(path, 4, ADAM, resume=f"{there}/{name}.ckpt", world_size=2, strategy=STRATEGIES[other]())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    train(folder / "one.ckpt", 2, ADAM)
    train(folder / "uninterrupted.ckpt", 4, ADAM)
    ranks.run(f"{__name__}.on_a_rank", folder, where=folder)
    return folder


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_folder_of_two_ranks_is_the_file_of_one_process(folder, name):
    path = folder / f"{name}.ckpt"
    assert not list(folder.glob("*.lit_gans_part"))
    files = {file.name for file in path.iterdir()}
    assert sum(file.endswith(".safetensors") for file in files) >= 2, "of each rank"
    assert json.loads((path / COMMIT).read_text())["files"].keys() == files - {COMMIT}
    assert_same(path, folder / "one.ckpt")


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_resume_bitwise_under_another_strategy(folder, name):
    assert_same(folder / f"{name}_resumed.ckpt", folder / "uninterrupted.ckpt")


def test_files_and_folders_replace_each_other(folder):
    path = folder / "exchanged" / "last.ckpt"
    assert [*path.parent.iterdir()] == [path]
    assert_same(path, folder / "uninterrupted.ckpt")


def test_a_single_process_replaces_the_folder_that_it_resumes_from_by_a_file(folder, tmp_path):
    path = tmp_path / "last.ckpt"
    shutil.copytree(folder / "deepspeed_3.ckpt", path)
    train(path, 4, ADAM, resume=path)
    assert [*tmp_path.iterdir()] == [path]
    assert path.is_file()
    assert_same(path, folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_folder_at_a_url_equals_the_folder_at_a_local_path(folder, name):
    assert_same(f"file://{folder}/there/{name}.ckpt", folder / "one.ckpt")
    local, there = ({path.name for path in (place / f"{name}.ckpt").iterdir()} for place in (folder, folder / "there"))
    assert there == local, "files of the one that was replaced"


@pytest.mark.parametrize("name", [*STRATEGIES, "file"])
def test_two_ranks_resume_from_a_url(folder, name):
    assert_same(folder / f"{name}_from_there.ckpt", folder / "uninterrupted.ckpt")
