"""What every GAN computes is what it computed: to 0.01 % everywhere, and bit for bit on the platform of the record."""

import json
from functools import cache

import pytest

from .record import GANS, RECORD, measure, this_platform

KNOWN = json.loads(RECORD.read_text())
SAME_PLATFORM = KNOWN["platform"] == this_platform()


measured = cache(measure)  # one sweep, and a test for each GAN


@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gan", GANS)
def test_ten_seeded_iterations_are_those_of_the_record(gan, processes):
    found, known = measured(processes)[gan], KNOWN["processes"][str(processes)][gan]
    if SAME_PLATFORM:
        assert found == known
    close = {"rel": 1e-4, "abs": 1e-5}
    for now, then in zip(found["losses"], known["losses"], strict=True):
        assert now == pytest.approx(then, **close)
    assert found["norms"] == pytest.approx(known["norms"], **close)
    # metrics are of float32 features
    assert found["metrics"] == pytest.approx(known["metrics"], rel=1e-3, abs=1e-4)
