"""The benchmark of evaluation: what it reports, and that both libraries do the same work. No timing is asserted."""

import json

import pytest

from benchmarks.metrics import metrics


def test_reports_both_libraries_on_equal_features(tmp_path):
    result = metrics("smoke", output=str(tmp_path / "metrics.json"), device="cpu")
    assert json.loads((tmp_path / "metrics.json").read_text()) == result
    assert result["features"]["largest_relative_difference"] < 1e-4
    for part in ("features", "evaluation"):
        rates = result[part]["images_per_second"]
        assert rates.keys() == {"torch_fidelity", "lit_gans"}
        assert min(rates.values()) > 0
    seconds = result["evaluation"]["seconds"]
    assert result["evaluation"]["speedup"] == pytest.approx(seconds["torch_fidelity"] / seconds["lit_gans"])
    assert result["num"] == 8
