"""What every GAN computed in the first edition it computes now: bit for bit on the platform of the record."""

import json

import pytest

from .record import GANS, RECORD, measure, this_platform

KNOWN = json.loads(RECORD.read_text())
SAME_PLATFORM = KNOWN["platform"] == this_platform()
RELATIVE = 0.05  # of the first losses elsewhere: rounding grows with every Adam step


@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ten_seeded_iterations_are_those_of_the_record(processes):
    found = measure(processes)
    for gan in GANS:
        known = KNOWN["processes"][str(processes)][gan]
        if SAME_PLATFORM:
            assert found[gan] == known, gan
        else:
            assert len(found[gan]["losses"]) == len(known["losses"])
            for now, then in zip(found[gan]["losses"][:3], known["losses"][:3], strict=True):
                assert now == pytest.approx(then, rel=RELATIVE), gan
