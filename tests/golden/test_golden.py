"""What every GAN computes is what it computed, in float64 within 1e-9, on any processor."""

import json
from functools import cache, partial

import pytest

from .record import GANS, RECORD, measure

KNOWN = json.loads(RECORD.read_text())

measured = cache(measure)  # one sweep, and a test for each GAN
near = partial(pytest.approx, rel=1e-9, abs=1e-12)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gan", GANS)
def test_ten_seeded_iterations_are_those_of_the_record(gan, processes):
    found, known = measured(processes)[gan], KNOWN[str(processes)][gan]
    for now, then in zip(found["losses"], known["losses"], strict=True):
        assert now == near(then)
    assert found["metrics"] == near(known["metrics"])
    assert found["weights"].keys() == known["weights"].keys()
    for name, digest in found["weights"].items():
        assert digest == near(known["weights"][name]), name
