"""A script against one process that receives the batches and random numbers of all ranks."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from lit_gans.check import one_process
from lit_gans.check.one_process import (
    NotJoined,
    RandomDraw,
    RecordingMode,
    ReplayMode,
    RunRecord,
    against_one_process,
    differences,
    make_private,
    relative_differences,
)
from lit_gans.check.recorder import Recorder
from lit_gans.common.errors import RefusedInput
from tests.strategies.ranks import ROOT


def against_one(script, *arguments):
    """Runs a script on two ranks and once more on one process, and returns the lines of the check, and the code."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "lit_gans.check"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *command, "--against-one", "3", str(script), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("lit_gans.check: ")]
    assert lines, ran.stderr
    return lines, ran.returncode


SCRIPT = """
import sys
from tests.check.loops import LOOPS

LOOPS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
"""
ALONE = """
import os, torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
network = torch.nn.Linear(4, 1)
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
data = torch.randn(64, 4)
for step in range(3):
    optimizer.zero_grad()
    model(data[8 * rank + 16 * step :][:8]).mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""


BATCH_NORM = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
data = torch.randn(48, 4)
for rows in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    model(rows).mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


@pytest.mark.ranks
@pytest.mark.parametrize("kind", ["torch", "accelerate", "fabric", "ours"])
def test_right_loops_train_the_weights_of_one_process(script, kind):
    lines, code = against_one(script, kind)
    assert [line.split()[2] for line in lines[:-1]] == ["as_on_one_process:"] * 3, lines
    assert code == 0
    assert max(float(line.partition("one process by ")[2].split()[0]) for line in lines[:-1]) < 1e-3


@pytest.mark.ranks
def test_an_adaptive_weight_of_each_rank_trains_other_weights(script):
    lines, code = against_one(script, "torch", "adaptive_weight")
    assert any("FAULT loss_factor_of_each_rank" in line for line in lines)
    assert any("FAULT differs_from_one_process: Adam of networks['first']" in line for line in lines)
    assert code == 1


@pytest.mark.ranks
def test_batch_norms_of_each_rank_train_other_weights(tmp_path):
    script = tmp_path / "batch_norm.py"
    script.write_text(BATCH_NORM)
    lines, code = against_one(script)
    assert any("note local_statistics" in line for line in lines)
    assert any("FAULT differs_from_one_process" in line and "SyncBatchNorm" in line for line in lines), lines
    assert code == 1


@pytest.mark.ranks
def test_batches_that_no_loader_yielded_are_reported(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    lines, code = against_one(script)
    assert "note not_compared: one process: " in lines[0]
    assert "its batches do not come from a DataLoader" in lines[0]
    assert "24 rows on one process, and 24 + 24 on the ranks" in lines[0]
    assert code == 0


# ---- one process, without a script

ARGUMENTS = (lambda: Recorder(1, lambda name, record: None, lambda name: None),)


def observed(function):
    with RecordingMode(1, *ARGUMENTS) as mode:
        function()
    return mode.run


def joined(function, *runs):
    with ReplayMode(1, *ARGUMENTS, runs):
        return function()


def latents_of(seed, draw=lambda: torch.randn(2, 3)):
    torch.manual_seed(seed)
    return draw()


def draws_of(draw, *seeds):
    """Returns what the ranks have drawn at the same line, and what one process receives there."""
    drawn = []
    runs = [observed(lambda seed=seed: drawn.append(latents_of(seed, draw))) for seed in seeds]
    return drawn, joined(lambda: latents_of(7, draw), *runs)


def test_random_numbers_are_joined_where_they_differ():
    drawn, received = draws_of(lambda: torch.randn(2, 3), 0, 1)
    assert torch.equal(received, torch.cat(drawn))
    drawn, received = draws_of(lambda: torch.randn(2, 3), 0, 0)
    assert torch.equal(received, drawn[0])


def test_a_number_for_a_whole_batch_cannot_be_joined():
    with pytest.raises(NotJoined, match=r"rand at .*test_one_process.py:\d+ draws \(\) on one process, and \(\), \(\)"):
        draws_of(lambda: torch.rand(()), 0, 1)
    with pytest.raises(NotJoined, match="draws random numbers at"):
        joined(lambda: torch.rand(2), RunRecord(), RunRecord())


def test_batches_are_joined_in_the_order_of_the_ranks():
    data = [torch.arange(8.0).reshape(4, 2) + 10 * rank for rank in range(2)]
    runs = [observed(lambda rows=rows: list(DataLoader(rows, 2, shuffle=True))) for rows in data]
    assert [run.draws for run in runs] == [[], []], "the sampler's are inside of the loader"
    received = joined(lambda: list(DataLoader(data[0], 2)), *runs)
    expected = [torch.cat(batches) for batches in zip(*(run.batches[0] for run in runs), strict=True)]
    assert torch.equal(torch.stack(received), torch.stack(expected))


def test_differences_are_relative_to_how_far_the_weights_have_moved():
    run = RunRecord(weights={"SGD": {"a": torch.ones(2)}}, moved={"SGD": {"a": 0.1}}, rows={"call": 2})
    other = RunRecord(weights={"SGD": {"a": torch.tensor([1.0, 1.001])}}, rows={"call": 4})
    assert differences([run, run], other) == {"SGD": pytest.approx(0.01, rel=1e-3)}
    with pytest.raises(NotJoined, match=r"2 rows on one process, and 2 \+ 2 on the ranks"):
        differences([run, run], RunRecord(rows={"call": 2}))
    with pytest.raises(NotJoined, match="SGD has other parameters"):
        differences([run, run], RunRecord(weights={"SGD": {"a": torch.ones(4)}}))
    with pytest.raises(NotJoined, match="of the script"):
        differences([run], RunRecord(error="ValueError: of the script"))


@pytest.mark.parametrize(("has_local_statistics", "remedy"), [(True, "SyncBatchNorm"), (False, "from the batches of")])
def test_other_weights_are_a_fault_whatever_their_cause(monkeypatch, has_local_statistics, remedy):
    monkeypatch.setattr(one_process, "second_run", lambda *_: ([], RunRecord()))
    monkeypatch.setattr(one_process, "differences", lambda *_: {"Adam": 0.5, "SGD": 1e-6})
    other, same = against_one_process(2, 3, ["train.py"], has_local_statistics)
    assert (other.kind, other.where, other.is_fault) == ("differs_from_one_process", "Adam", True)
    assert remedy in other.remedy
    assert (same.kind, same.where, same.is_fault) == ("as_on_one_process", "SGD", False)


def test_a_rank_that_has_not_ended_is_not_compared_and_the_batches_are_removed(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    monkeypatch.setattr(one_process, "folder_of_run", lambda: folder)
    make_private(folder)
    RecordingMode(1, *ARGUMENTS).save(folder / "0.pt", None)
    (finding,) = against_one_process(2, 3, ["train.py"], False)
    assert (finding.kind, finding.is_fault) == ("not_compared", False)
    assert "rank 1 has not ended within --patience seconds" in finding.what
    assert not folder.exists()
    RecordingMode(1, *ARGUMENTS).save(folder / "1.pt", None)  # as rank 1 does afterwards
    assert not folder.exists()


def test_the_loader_of_torch_is_as_before():
    iterate = DataLoader.__iter__
    observed(lambda: None)
    assert DataLoader.__iter__ is iterate
    assert RandomDraw("rand", "a.py:1", torch.ones(1)).line == "a.py:1"


def test_records_are_never_read_from_a_folder_that_others_can_write_to(tmp_path):
    make_private(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    make_private(tmp_path / "new")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(RefusedInput, match="other users can write to it: remove it"):
        make_private(tmp_path / "shared")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(RefusedInput, match="other users"):
        make_private(tmp_path / "link")


def test_a_parameter_that_hardly_moved_is_compared_with_a_thousandth_of_the_largest_change():
    weights = {"moves": torch.tensor([2.0]), "rests": torch.tensor([1.0])}
    others = {"moves": torch.tensor([2.5]), "rests": torch.tensor([1 + 2**-10])}
    off = relative_differences(weights, others, {"moves": 1.0, "rests": 0.0})
    assert off == {"moves": 0.5, "rests": pytest.approx(1000 * 2**-10)}
    assert relative_differences(weights, others, {"moves": 1.0, "rests": 0.5})["rests"] == 2**-9
