import logging
import warnings

import pytest

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.quiet import quiet


@pytest.fixture(autouse=True)
def restored():
    ours = logging.getLogger("lit_gans")
    handlers, level = [*ours.handlers], ours.level
    ours.handlers.clear()
    yield
    ours.handlers[:], ours.level = handlers, level


@pytest.mark.parametrize(("rank", "shown"), [(None, "packed 5 images\nno space\n"), ("1", "no space\n")])
def test_our_records_reach_stderr_once_and_rank_1_only_warns(capsys, monkeypatch, rank, shown):
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    quiet()
    quiet()
    logger = logging.getLogger("lit_gans.data.packed.writer")
    logger.info("packed 5 images")
    logger.warning("no space")
    assert capsys.readouterr().err == shown


def test_an_epoch_shorter_than_the_logging_interval_is_no_warning(tiny_gan, random_images, fit, tmp_path):
    """Which pytest would turn into an error."""
    quiet()
    fit(tiny_gan("gan"), random_images(), 1, logger=CSVMetrics(str(tmp_path)))


def test_warnings_are_printed_without_their_source(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    quiet()
    assert warnings.formatwarning("the best starts anew", UserWarning, "a.py", 3) == "warning: the best starts anew\n"
