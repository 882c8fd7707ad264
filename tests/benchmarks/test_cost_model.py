"""The cost model in closed form, against a simulated ring, and against the scaling study's tables."""

import random
from dataclasses import replace

import pytest

from benchmarks import scaling_study
from benchmarks.cost_model import (
    Cluster,
    Link,
    Observation,
    Traffic,
    calibrated,
    communication,
    compute_seconds,
    expected_maximum,
    link_of,
    step_seconds,
    traffic,
)

SLOW, FAST = Link(1e-4, 1e9), Link(1e-6, 1e11)


def ring_all_reduce(num_bytes, devices, link):
    """Sends every chunk from neighbor to neighbor, as a ring does, and adds up the seconds."""
    seconds = 0.0
    for _ in ("reduce-scatter", "all-gather"):
        for _ in range(devices - 1):
            seconds += link.latency + num_bytes / devices / link.bandwidth
    return seconds


@pytest.mark.parametrize("devices", [2, 3, 8, 1024])
def test_a_ring_costs_what_its_messages_cost(devices):
    ops = Traffic(all_reduces=(4e6, 2e6), gathers=(8e6,))
    expected = sum(ring_all_reduce(size, devices, SLOW) for size in ops.all_reduces)
    expected += ring_all_reduce(8e6, devices, SLOW) / 2
    assert communication(ops, Cluster(SLOW), devices) == pytest.approx(expected)
    assert step_seconds(0.5, ops, Cluster(SLOW), 1) == 0.5, "one device sends nothing"


def test_hierarchical_reduction_sends_less_between_nodes_and_a_flat_ring_is_as_slow_as_its_slowest_link():
    ops, cluster = Traffic(all_reduces=(1e7,)), Cluster(SLOW, inside=FAST, devices_per_node=8)
    assert communication(ops, cluster, 8) == pytest.approx(ring_all_reduce(1e7, 8, FAST))
    assert communication(ops, cluster, 64) == pytest.approx(ring_all_reduce(1e7, 64, SLOW))
    expected = ring_all_reduce(1e7, 8, FAST) + ring_all_reduce(1e7, 8, SLOW)
    assert communication(ops, cluster, 64, hierarchical=True) == pytest.approx(expected)


def test_traffic_of_each_kind_of_sharding():
    assert traffic("ddp", 4, 3, n_critic=2) == Traffic(all_reduces=(3, 3, 4))
    ring, halves = (communication(traffic(kind, 4e6, 3e6), Cluster(SLOW), 4) for kind in ("ddp", "zero_2"))
    assert ring == pytest.approx(halves), "a reduce-scatter and an all-gather are an all-reduce"
    # D: two gathers and a reduction in its step, two gathers in the generator's; G: the same, with shared images
    assert sorted(traffic("fsdp", 4, 3).gathers) == [3] * 5 + [4] * 3
    assert sorted(traffic("zero_3", 4, 3, n_critic=5, reuses_fake=False).gathers) == [3] * 17 + [4] * 8


def test_overlap_hides_no_more_than_the_backward_pass():
    ops = Traffic(all_reduces=(1e9,))
    exchanged = communication(ops, Cluster(SLOW), 2)
    assert step_seconds(0.4, ops, Cluster(SLOW, overlap=1.0), 2) == pytest.approx(0.4 + exchanged - 0.2)
    assert step_seconds(9.0, ops, Cluster(SLOW, overlap=0.5), 2) == pytest.approx(9.0 + exchanged / 2)


def test_the_slowest_of_several_devices():
    draw = random.Random(0)
    for devices in (2, 8):
        mean = sum(max(draw.gauss(0, 1) for _ in range(devices)) for _ in range(20_000)) / 20_000
        assert expected_maximum(devices) == pytest.approx(mean, abs=0.03)
    assert step_seconds(2.0, Traffic(), Cluster(SLOW, spread=0.1), 8) == pytest.approx(2 + 0.2 * expected_maximum(8))


def test_computation_is_exact_where_it_was_measured_and_on_lines_elsewhere():
    measured = {8: 0.02, 16: 0.03, 64: 0.11}
    assert [compute_seconds(measured, size) for size in measured] == list(measured.values())
    assert compute_seconds(measured, 12) == pytest.approx(0.025)
    assert compute_seconds(measured, 112) == pytest.approx(0.19)
    assert compute_seconds({10: 0.5}, 20) == 1.0


def test_calibration_recovers_a_cluster_and_never_a_negative_number():
    truth = Cluster(Link(3e-4, 2e9), spread=0.2)
    cases = [(0.1, 3e7, 8), (0.02, 3e7, 4), (0.3, 1e7, 16), (0.05, 5e7, 2)]
    seen = [Observation(compute, Traffic(all_reduces=(size, size)), devices, 0.0) for compute, size, devices in cases]
    seen = [replace(each, seconds=step_seconds(each.compute, each.ops, truth, each.devices)) for each in seen]
    found = calibrated(seen, Cluster(Link(0, 1)))
    assert found.spread == pytest.approx(0.2)
    assert found.between.latency == pytest.approx(3e-4)
    assert found.between.bandwidth == pytest.approx(2e9)
    faster = [replace(each, seconds=each.compute / 2) for each in seen]  # nothing explains it
    assert calibrated(faster, Cluster(Link(0, 1))) == Cluster(Link(0.0, float("inf")))


def test_a_link_is_found_from_timed_all_reduces():
    times = {size: ring_all_reduce(size, 3, SLOW) for size in (1000, 10_000_000)}
    found = link_of(times, 3)
    assert found.latency == pytest.approx(SLOW.latency)
    assert found.bandwidth == pytest.approx(SLOW.bandwidth)


def test_the_study_s_tables_are_reproduced():
    """Three numbers that the study does not give, from its own rows; then each row from the others alone."""
    within, left_out = scaling_study.errors_in_sample(), scaling_study.errors_left_out()
    assert scaling_study.median_error(within) < 0.05
    assert scaling_study.median_error(left_out) < 0.15
    assert max(map(abs, left_out.values())) < 0.15
    dcgan = scaling_study.calibrate([point for point in scaling_study.POINTS if point.gan == "dcgan"])
    assert abs(scaling_study.error(scaling_study.POINTS[-1], dcgan)) < 0.15, "SNGAN from DCGAN's rows"
