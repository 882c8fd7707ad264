"""Modules of other projects with our strategy, where they are installed: the check finds their faults only."""

from dataclasses import asdict

import pytest

from lit_gans.check import check_ranks
from tests.strategies import ranks
from tests.strategies.foreign.train import FOREIGN, outcomes
from tests.strategies.test_foreign_modules import installed

pytestmark = pytest.mark.ranks
# Its adaptive weight is that of each rank's own images. That of `sgm_autoencoder` is at its cap on both ranks.
FAULTS = {"taming_vqgan": ["loss_factor_of_each_rank"]}


def findings(name):
    """Trains a module, and returns the faults that this rank has found, and the watched steps."""
    with check_ranks() as check:
        outcomes(name, ("network_ddp",), exact=True)
    return [asdict(finding) for finding in check.faults], check.watched


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_module_has_no_other_fault(tmp_path, name):
    if not installed(FOREIGN[name][0]):
        pytest.skip(f"{FOREIGN[name][0]} is not installed")
    found, watched = ranks.run(f"{__name__}.findings", tmp_path, name=name)[0]
    assert [finding["kind"] for finding in found] == FAULTS.get(name, []), found
    assert watched
