"""The soak: what it does to trainings, what it notices, and how it reports it; a training of its own is slow."""

import json
import random
from unittest.mock import Mock

import pytest
import torch

from lit_gans.benchmark import soak as module
from lit_gans.benchmark import soak_faults, soak_run, soak_training
from lit_gans.benchmark.soak import soak
from lit_gans.benchmark.soak_faults import FAULTS, damage, largest_file, refuse_unclear
from lit_gans.benchmark.soak_results import difference, resumes_at
from lit_gans.benchmark.soak_run import SoakRun, Survived, _rows_at
from lit_gans.benchmark.soak_training import STEPS, Lost, Setting, Training, processes_of
from lit_gans.common.errors import RefusedInput

CSV = b"step,loss\r\n0,1.0\r\n1,2.0\r\n2,3.0\r\n"


@pytest.mark.slow
def test_a_real_training_survives(tmp_path):
    result = soak(preset="smoke", gans=["dcgan"], strategies=["auto"], output=str(tmp_path / "soak.json"))
    assert result["lost"] == []
    assert sum(found["times"] for found in result["faults"].values()) >= 1
    assert json.loads((tmp_path / "soak.json").read_text()) == result


@pytest.fixture
def stubbed(monkeypatch):
    """Replaces trainings by two faults, and what the second lost."""
    losses = {}

    def train(self, reference):
        self.survived += [Survived("SIGKILL", 2), Survived("SIGTERM", 0)]
        if self.folder.name in losses:
            raise Lost(losses[self.folder.name])

    monkeypatch.setattr(SoakRun, "train", train)
    monkeypatch.setattr(module._Soak, "_reference", lambda *_: {})
    return losses


def test_nothing_lost_is_reported(stubbed, capsys, tmp_path):
    result = soak(runs=3, output=str(tmp_path / "soak.json"))
    assert (result["runs"], result["lost"]) == (3, [])
    assert result["faults"] == {
        "SIGKILL": {"times": 3, "survived": 3, "most_repeated": 2},
        "SIGTERM": {"times": 3, "survived": 3, "most_repeated": 0},
    }
    assert json.loads((tmp_path / "soak.json").read_text()) == result
    assert "lost: nothing" in capsys.readouterr().out


def test_a_loss_ends_with_exit_code_1_and_says_how_to_repeat_it(stubbed, command):
    stubbed["8"] = "differs in last.ckpt"
    code, out, _ = command("bench", "soak", "seed=5", "first=7", "runs=2", "gans=[dcgan]", "strategies=[auto]")
    assert "1 trainings lost something" in str(code)
    assert "lit-gans bench soak seed=5 first=8 runs=1: dcgan auto: differs in last.ckpt" in out
    found = json.loads(out.splitlines()[-1])
    assert found["faults"]["SIGTERM"] == {"times": 2, "survived": 1, "most_repeated": 0}
    assert found["lost"][0]["faults"] == ["SIGKILL", "SIGTERM"]


def test_minutes_decide_when_it_stops(stubbed, monkeypatch):
    seconds = iter([0, 0, 40, 80, 120, 120])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(seconds))
    assert soak(minutes=2)["runs"] == 3


def test_a_number_draws_the_same_training_again(stubbed, monkeypatch):
    drawn = []
    monkeypatch.setattr(SoakRun, "train", lambda self, _: drawn.append((self.setting, self.faults)))
    soak(runs=20, seed=3)
    soak(runs=1, seed=3, first=11)
    assert drawn[20] == drawn[11]
    assert len({setting.gan for setting, _ in drawn}) >= 5
    assert {setting.strategy for setting, _ in drawn} >= {"auto", "ddp", "fsdp"}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"minutes": 0.0}, "minutes=0.0 must be greater than 0"),
        ({"runs": 0}, "runs=0 must be at least 1"),
        ({"first": -1}, "first=-1 must be at least 0"),
        ({"gans": ["biggan"]}, "there are d2gan"),
        ({"strategies": []}, "there are auto, ddp"),
    ],
)
def test_refusals(wrong, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        soak(**wrong)


@pytest.mark.parametrize("how", ["truncated", "zeroed", "flipped bit"])
@pytest.mark.parametrize("seed", range(20))
def test_damage_changes_the_bytes_that_it_says(tmp_path, how, seed):
    path = tmp_path / "metrics.csv"
    path.write_bytes(CSV)
    lost = damage(path, how, random.Random(seed))
    after = path.read_bytes()
    assert after != CSV
    assert after[: lost.start] == CSV[: lost.start]
    assert after[lost.stop :] == (b"" if how == "truncated" else CSV[lost.stop :])
    assert len(after) == (lost.start if how == "truncated" else len(CSV))
    assert _rows_at(CSV, lost), "no line is lost as a whole, of which nothing would remain to be named"


def test_rows_at_the_lost_bytes():
    assert _rows_at(CSV, range(3, 4)) == set(range(STEPS + 1)), "the header"
    assert _rows_at(CSV, range(20, 21)) == {1}
    assert _rows_at(CSV, range(20, len(CSV))) == {1, 2}


def test_a_limit_belongs_to_the_full_disk_alone():
    limits = {name: largest_file(name, random.Random(0)) for name in FAULTS}
    assert [name for name, limit in limits.items() if limit] == ["full disk"]


def test_a_full_disk_must_end_with_a_sentence():
    sentence = "lit-gans: run/metrics.csv cannot be written: File too large. What was complete before still is."
    refuse_unclear(1, f"iteration 3/16\n{sentence}")
    refuse_unclear(2, sentence)
    traceback = "Traceback (most recent call last)\n  File\nOSError: File too large"
    for code, output in ((1, f"{traceback}\n{sentence}"), (1, traceback), (-25, sentence), (3, sentence)):
        with pytest.raises(Lost, match=f"ends with exit code {code}"):
            refuse_unclear(code, output)
    with pytest.raises(Lost, match="without a sentence"):
        refuse_unclear(1, "Killed")


def test_a_killed_rank_must_end_a_training_that_is_not_complete(run, monkeypatch):
    monkeypatch.setattr(soak_faults, "processes_of", lambda _: [])
    kill, training = FAULTS["SIGKILL of one process"], Mock(spec=Training, process=Mock(), iterations=[5, 6])
    training.end.return_value = 0
    with pytest.raises(Lost, match="a rank was killed, and the exit code is 0"):
        kill(run, training, random.Random(0))
    run.begins_at, training.iterations = STEPS, []  # nothing was left to train
    monkeypatch.setattr(soak_run, "resumes_at", lambda _: STEPS)
    kill(run, training, random.Random(0))


def test_difference_is_bitwise():
    ours = {"last state_dict": {"w": torch.ones(2)}, "epoch": 1, "states": [{"betas": (0.5, 0.9)}]}
    assert difference(ours, {**ours, "last state_dict": {"w": torch.ones(2)}}) is None
    nearly = {**ours, "last state_dict": {"w": torch.tensor([1.0, 1 + 1e-7])}}
    assert difference(nearly, ours) == "differs in last state_dict"
    assert "epoch" in difference({"last state_dict": ours["last state_dict"]}, ours)
    assert difference({**ours, "states": [{"betas": (0.5, 0.999)}]}, ours) == "differs in states"


class Finished(Training):
    """A training that trained some iterations and printed something."""

    def __init__(self, iterations, output=""):
        self.lines = [*(f"iteration {iteration}/{STEPS}  loss" for iteration in iterations), output]


@pytest.fixture
def run(tmp_path):
    return SoakRun(Setting("dcgan"), tmp_path, tmp_path, [], random.Random(0), begins_at=4)


def test_iterations_that_are_skipped_or_repeated_are_lost(run):
    run._check(Finished([5, 6, 7]))
    for wrong in ([1, 2], [6, 7], [5, 7], [4, 5]):
        with pytest.raises(Lost, match="after the checkpoint of iteration 4"):
            run._check(Finished(wrong))


def test_damage_that_nobody_names_is_lost(run):
    run._to_name = ["metrics.csv"]
    run._check(Finished([5], "metrics.csv is damaged"))
    run._check(Finished([]))
    assert run._named == ["metrics.csv"], "the next process must name it"
    with pytest.raises(Lost, match="nothing says so"):
        run._check(Finished([5]))
    run._to_name, run._named = ["statistics.safetensors"], []
    run._check(Finished([5, 6, 7, 8]))
    assert run._named == ["statistics.safetensors"], "the measurement of iteration 8 reads them"
    with pytest.raises(Lost, match="nothing says so"):
        run._check(Finished([5, 6, 7, 8, 9]))


def test_a_missing_checkpoint_is_lost(run):
    with pytest.raises(Lost, match="newest good checkpoint is that of iteration 0, not of 6"):
        run.interrupted(Finished([5, 6, 7]))
    with pytest.raises(Lost, match="not of 7"):
        run.stopped(Finished([5, 6, 7]))


def test_a_fresh_start_is_lost(run, monkeypatch):
    run._at_least = 6
    with pytest.raises(Lost, match="continues at 0, the checkpoint of iteration 6 was written"):
        run._start(None)
    monkeypatch.setattr(soak_run, "resumes_at", lambda _: None)
    with pytest.raises(Lost, match="no checkpoint is good"):
        run._start(None)


def test_other_results_and_files_left_behind_are_lost(run, monkeypatch):
    monkeypatch.setattr(soak_run, "results", lambda _: {"epoch": 1})
    logged = {0: {"loss": "1"}, 1: {"loss": "2"}}
    monkeypatch.setattr(soak_run, "rows", lambda _: logged)
    reference = {"results": {"epoch": 1}, "rows": dict(logged)}
    run._finished(reference)
    with pytest.raises(Lost, match="differs in epoch from an uninterrupted"):
        run._finished({**reference, "results": {"epoch": 2}})
    reference["rows"][2] = {"loss": "3"}
    with pytest.raises(Lost, match=r"differs in rows \[\] and lacks \[2\]"):
        run._finished(reference)
    run._rows_lost = {2}  # damaged, and named
    run._finished(reference)
    reference["rows"][2]["fid"], logged[2] = "9", {"loss": "3"}  # measured before the checkpoint, and its loss after
    run._finished(reference)
    logged[1] = {"loss": "2.1"}
    with pytest.raises(Lost, match=r"differs in rows \[1\]"):
        run._finished(reference)
    logged[1] = {"loss": "2"}
    (run.folder / "last.ckpt.part").touch()
    with pytest.raises(Lost, match=r"last\.ckpt\.part'] are left behind"):
        run._finished(reference)


def test_without_checkpoints_a_training_begins_anew_and_with_damaged_ones_it_does_not(tmp_path):
    assert resumes_at(tmp_path) == 0
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/last.ckpt").write_bytes(b"")
    assert resumes_at(tmp_path) is None
    torch.save({"global_step": 4, "state_dict": {}}, tmp_path / "checkpoints/step-00000004.ckpt")
    assert resumes_at(tmp_path) == 4


def test_all_processes_of_a_training_end(tmp_path, monkeypatch):
    """A process that its parent leaves behind is a loss, and is killed."""
    script = "import subprocess, sys; print('iteration 1/16  loss', flush=True)"
    script += "; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); sys.exit(3)"
    monkeypatch.setattr(soak_training, "_GRACE", 0.2)
    monkeypatch.setattr(soak_training, "_COMMAND", ["-c", script])
    training = Training(tmp_path, [])
    training.wait_for(1)
    assert training.iterations == [1]
    with pytest.raises(Lost, match="goes on after the first has ended"):
        training.end()
    assert processes_of(training.process.pid) == []
