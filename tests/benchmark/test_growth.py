"""The growth benchmark: what it samples, what it calls growth, and how it ends; a training of its own is slow."""

import json
import mmap
import sys
import threading
from contextlib import suppress

import pytest

from lit_gans.benchmark import growth as module
from lit_gans.benchmark.growth import grew, grown, growth
from lit_gans.benchmark.growth_samples import TimedCSV, held
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput

STEADY = {name: [100.0] * 50 for name in ("memory", "files", "threads")} | {
    "csv_row": [1e-5] * 50,
    "csv_bytes": [90.0] * 50,
}


@pytest.mark.slow
def test_files_and_threads_of_a_real_training_do_not_grow(tmp_path):
    # memory is left out: 300 iterations are within its warm-up
    with suppress(SystemExit):
        growth(steps=300, evaluations=20, processes=[1], output=str(tmp_path / "growth.json"))
    result = json.loads((tmp_path / "growth.json").read_text())
    (found,) = result["runs"]["1"]
    assert set(found) == {"memory", "files", "threads", "csv_row", "csv_bytes"}
    assert found["csv_bytes"]["growth_percent"] < 2
    assert found["files"]["growth_percent"] <= 0
    assert found["threads"]["growth_percent"] <= 0
    assert found["memory"]["warm"] > 2**26


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_open_files_threads_and_memory_are_seen(tmp_path):
    before = held()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with (tmp_path / "x").open("w"):
        # not of malloc, which may have as much memory that other tests have freed
        block = mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.write(bytes([1]) * len(block))
        after = held()
    stop.set()
    thread.join()
    assert after["files"] == before["files"] + 1
    assert after["threads"] == before["threads"] + 1
    assert after["memory"] - before["memory"] > len(block) / 2
    block.close()
    assert held()["files"] == before["files"]


def test_rows_are_timed_and_written_as_they_are_without(tmp_path):
    timed, plain = TimedCSV(str(tmp_path / "timed")), CSVMetrics(str(tmp_path / "plain"))
    for each in (timed, plain):
        for step in range(25):
            each.log_metrics({"loss": step / 7}, step)
        each.finalize("success")
    assert (tmp_path / "timed/metrics.csv").read_bytes() == (tmp_path / "plain/metrics.csv").read_bytes()
    assert len(timed.seconds) == 2
    assert min(timed.seconds) > 0


class Rewriting(TimedCSV):
    """Writes the complete file for every row."""

    def _append(self, columns):
        self._rewrite(self._read())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("kind", "grows"), [(TimedCSV, False), (Rewriting, True)])
def test_the_bytes_of_a_row_do_not_grow_with_the_file(tmp_path, kind, grows):
    logger = kind(str(tmp_path))
    for step in range(1000, 1300):
        logger.log_metrics({"loss": 0.5, "speed": 2.0}, step)
    assert len(logger.num_bytes) >= 25
    found = grew(STEADY | {"csv_bytes": logger.num_bytes})
    assert bool(grown({"1": [found]})) == grows
    assert (found["csv_bytes"]["end"] > 1.1) == grows


def test_growth_is_between_the_second_and_the_last_fifth():
    # the first and the middle fifths do not count, nor does a single outlier
    samples = [9.0] * 10 + [100.0] * 9 + [500.0] + [7.0] * 20 + [103.0] * 10
    assert grew({"files": samples})["files"] == {"warm": 100.0, "end": 103.0, "growth_percent": pytest.approx(3)}
    assert grew({"files": samples, "csv_row": []}).keys() == {"files"}, "only the first process writes rows"


@pytest.mark.parametrize("name", ["memory", "files", "threads", "csv_bytes"])
def test_two_percent_is_too_much(name, command, monkeypatch):
    monkeypatch.setattr(module, "_train", lambda *_: [grew(STEADY), grew(STEADY | {name: leaking})])
    leaking = [100.0] * 40 + [101.9] * 10
    assert command("bench", "growth", "processes=[2]")[0] == 0
    leaking = [100.0] * 40 + [102.0] * 10
    code, out, _ = command("bench", "growth", "processes=[2]")
    assert f"lit-gans: {name} of process 1 of 2 grew by 2.0 %" in str(code)
    assert f"{name}, process 1 of 2" in out
    assert json.loads(out.splitlines()[-1])["grown"] == [f"{name} of process 1 of 2 grew by 2.0 %"]


def test_the_time_of_a_row_is_reported_and_not_bounded():
    slower = STEADY | {"csv_row": [1e-5] * 40 + [2e-5] * 10}
    found = grew(slower)
    assert found["csv_row"]["growth_percent"] == pytest.approx(100)
    assert grown({"1": [found]}) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"steps": 99}, "steps=99 must be at least 100"),
        ({"evaluations": -1}, "evaluations=-1 must be at least 1"),
        ({"processes": [1, 0]}, r"processes\[1\]=0 must be at least 1"),
        ({"processes": []}, r"processes=\[\]"),
    ],
)
def test_refusals(wrong, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        growth(**wrong)
