"""The data benchmark: what it reports. No timing is asserted."""

import json

import pytest

from benchmarks.data import data


def test_smoke_measures_everything_and_writes_it(tmp_path, capsys):
    result = data(preset="smoke", rounds=1, steps=2, output=str(tmp_path / "new" / "data.json"), device="cpu")
    assert json.loads((tmp_path / "new" / "data.json").read_text()) == result
    assert result["serving"]["images_per_second"].keys() == {"lit_gans", "ImageFolder"}
    assert result["packing"]["images_per_second"].keys() == {"lit_gans", "one process"}
    for kind in ("serving", "packing"):
        speeds, ratio = result[kind]["images_per_second"], result[kind]["ratio"]
        ours, theirs = (speed["median"] for speed in speeds.values())
        assert ratio["median"] == pytest.approx(ours / theirs), "of one round"
    assert 0 < result["waiting"] < 1
    assert "of its time for data" in capsys.readouterr().out
