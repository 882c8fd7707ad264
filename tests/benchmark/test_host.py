"""The host benchmark: what it reports, that its loops do the same work, and how samples are classified."""

import io
import json
import sys
import time
from contextlib import ExitStack, redirect_stdout

import pytest
import torch

from lit_gans.benchmark.calls import CountedFirst
from lit_gans.benchmark.floor import EmptyRun
from lit_gans.benchmark.host import host
from lit_gans.benchmark.measure import interval_of_median
from lit_gans.benchmark.sampling import KINDS, kind_of
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "host.json"
    with redirect_stdout(printed := io.StringIO()):
        result = host("smoke", output=str(path), warmup=1)
    return result, path, printed.getvalue()


def test_result_is_written_and_complete(smoke):
    result, path, _ = smoke
    assert json.loads(path.read_text()) == result
    assert list(result["gans"]) == ["dcgan", "sngan", "wgan_gp", "d2gan"]
    for found in result["gans"].values():
        for clock in ("seconds", "processor_seconds"):
            assert set(found[clock]) == {"tutorial", "bare", "lit_gans", "empty"}
            assert all(0 < each["lower_quartile"] <= each["upper_quartile"] for each in found[clock].values())
            over = found[f"over_bare_{clock}"]
            assert over["median_low"] <= over["lower_quartile"] <= over["upper_quartile"] <= over["median_high"], "of 3"
        processor = found["processor_seconds"]  # which other processes disturb less
        assert processor["empty"]["lower_quartile"] < processor["lit_gans"]["upper_quartile"]
        assert found["samples"] > 0
        assert 0 < found["calls"]["empty"] < min(found["calls"]["bare"], found["calls"]["lit_gans"])
        assert sum(found["shares"].values()) == pytest.approx(1)
        assert set(found["shares"]) == {*KINDS, "other"}


def test_bare_and_lit_gans_do_the_same_work(smoke):
    assert {found["largest_weight_difference"] for found in smoke[0]["gans"].values()} == {0}


def test_the_table_is_printed(smoke):
    result, _, printed = smoke
    assert json.loads(printed.splitlines()[-1]) == result
    assert all(text in printed for text in ("lit_gans - bare", "95 % of its median", "freezing", "Lightning", "dcgan"))


def test_the_empty_module_runs_in_turns_with_other_work():
    worked = []

    def work():
        start = time.thread_time()
        sum(range(10**6))
        worked.append(time.thread_time() - start)

    empty = EmptyRun(torch.zeros(1), 4, work)
    assert len(worked) == len(empty.seconds) == len(empty.processor_seconds) == 4
    assert 0 < empty.counter.fewest() == empty.counter.counts[0] < 2000
    assert min(empty.processor_seconds) < min(worked), "the work is not timed"


def test_calls_are_counted_the_first_times_and_what_was_set_before_is_set_again():
    seen, before = [], sys.getprofile()
    counted = CountedFirst(2, ExitStack())
    for number in (1, 5, 3):
        with counted:
            seen.append(sys.getprofile() is not before)
            for _ in range(number):
                len(seen)
    assert seen == [True, True, False]
    assert sys.getprofile() is before
    assert counted.counter.counts[1] - counted.counter.counts[0] == 4
    assert counted.counter.fewest() == counted.counter.counts[0]


def test_the_interval_holds_the_median_in_95_of_100_samples():
    drawn = torch.rand(2000, 60, generator=torch.Generator().manual_seed(0)) ** 3  # skewed, the median is 1/8
    intervals = [interval_of_median(values) for values in drawn.tolist()]
    assert 0.94 < sum(low <= 1 / 8 <= high for low, high in intervals) / len(intervals) < 0.98
    assert interval_of_median([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_a_sample_counts_for_the_innermost_frame_with_a_meaning(tmp_path):
    seen = []

    class Loud(str):
        def __repr__(self):
            seen.append(kind_of(sys._getframe()))
            return ""

    class LoudFloat(float):
        def __float__(self):
            repr(Loud())
            return 0.0

    mix(Loud())
    CSVMetrics(str(tmp_path)).log_metrics({"loss": LoudFloat()})
    repr(Loud())
    assert seen == ["noise", "logging", "other"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"gans": ("dcgan", "x")}, "choose from dcgan, sngan, wgan_gp, d2gan"),
        ({"gans": ()}, r"gans=\[\]: choose from"),
    ],
)
def test_wrong_values_are_refused(wrong, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        host(**wrong)
