"""What every GAN computes is what it computed: to 0.01 % everywhere, and bit for bit on the platform of the record."""

import json

import pytest

from .record import GANS, RECORD, measure, this_platform

KNOWN = json.loads(RECORD.read_text())
SAME_PLATFORM = KNOWN["platform"] == this_platform()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ten_seeded_iterations_are_those_of_the_record(processes):
    found = measure(processes)
    for gan in GANS:
        known = KNOWN["processes"][str(processes)][gan]
        if SAME_PLATFORM:
            assert found[gan] == known, gan
        close = {"rel": 1e-4, "abs": 1e-5}
        for now, then in zip(found[gan]["losses"], known["losses"], strict=True):
            assert now == pytest.approx(then, **close), gan
        assert found[gan]["norms"] == pytest.approx(known["norms"], **close), gan
        # metrics are of float32 features
        assert found[gan]["metrics"] == pytest.approx(known["metrics"], rel=1e-3, abs=1e-4), gan
