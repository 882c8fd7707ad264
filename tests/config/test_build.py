"""Every option of every group composes."""

from pathlib import Path

import pytest

from lit_gans import compose

CONF = Path(__file__).parents[2] / "conf"
OPTIONS = sorted(path.relative_to(CONF).with_suffix("") for path in CONF.glob("*/*.yaml"))


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_every_option_composes(option):
    assert compose(f"{option.parent}={option.name}").model
