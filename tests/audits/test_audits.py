"""Public trainers match the page of the audit. The slow tests need LIT_GANS_AUDITS, a folder with their checkouts."""

import os
import re
from importlib.metadata import version

import pytest

from tests.audits.__main__ import DRIVERS, audit
from tests.docs.blocks import ROOT

CHECKOUTS = os.environ.get("LIT_GANS_AUDITS", "")
PAGE = (ROOT / "docs/explain/audit.md").read_text()
ROWS = {driver: rest.split("|") for rest, driver in re.findall(r"^\|(.*)\| `(\w+)` \|$", PAGE, re.M)}
LIGHTNING_1 = ("ldm", "taming", "vocos")  # drivers that need Lightning 1.9
ROUNDING = 1e-4  # maximum relative distance that is due to rounding; some trainers need float32


def test_the_page_has_a_row_for_each_driver():
    assert set(ROWS) == set(DRIVERS)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUTS, reason="LIT_GANS_AUDITS names no folder with checkouts")
@pytest.mark.parametrize("name", DRIVERS)
def test_a_trainer_does_what_its_row_says(name):
    if name in LIGHTNING_1 and not version("pytorch-lightning").startswith("1."):
        pytest.skip("needs pytorch-lightning 1.9")
    _, _, check, _, cause, _ = ROWS[name]
    lines, found = audit(name, CHECKOUTS)
    faults, _, notes = check.partition("note")
    for word, column in (("FAULT", faults), ("note", notes)):
        kinds = {kind for line in lines for kind in re.findall(rf"{word} (\w+):", line)}
        assert kinds == set(re.findall(r"`(\w+)`", column)), word
    assert all(off < ROUNDING for _, off, _ in found) == (cause.strip() == "right")
