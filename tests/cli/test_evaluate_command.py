"""The command line of `lit-gans evaluate`: extractors and scores by their keys."""

import json
import sys

import pytest
import torch

from lit_gans.metrics import PrecisionRecallDensityCoverage
from tests.cli.pictures import pictures, write


@pytest.fixture
def folders(tmp_path):
    """The arguments that name two folders of pictures."""
    return [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]


def test_a_module_of_a_users_file_is_an_extractor_also_for_kid_and_prdc(folders, tmp_path, monkeypatch, ran, refused):
    (tmp_path / "own_features.py").write_text(
        "import torch\n\n\nclass Pooled(torch.nn.Module):\n"
        "    def __init__(self, size: int = 4):\n        super().__init__()\n        self.size = size\n\n"
        "    def forward(self, images):\n"
        "        return torch.nn.functional.adaptive_avg_pool2d(images, self.size).flatten(1)\n"
    )
    monkeypatch.setattr("sys.path", list(sys.path))
    own = ["metrics=module", "metrics.extractor.module._target_=own_features.Pooled", "output=a.json", "device=cpu"]
    ran("evaluate", *folders, *own, "metrics.scores.kid.subset_size=10", "+metrics.extractor.module.size=2")
    record = json.loads((tmp_path / "a.json").read_text())
    found = {key for key in record if key.startswith("metric/")}
    assert found == {
        f"metric/{name}_module" for name in ("fid", "kid", "kid_spread", *PrecisionRecallDensityCoverage.directions)
    }
    assert record["left_out"] == {"inception_score": "the extractor has no class logits."}
    assert "metrics.extractor.module._target_: Missing mandatory value" in refused("evaluate", *folders, *own[:1])


def test_the_command_line_takes_scores_and_extractors(folders, tmp_path, ran):
    scores = ["score@metrics.scores.kid=kid", "metrics.scores.kid.subset_size=10", "metrics.scores.kid.subsets=3"]
    scores += ["metrics.scores.fid=null"]
    ran("evaluate", *folders, "metrics=digits", *scores, "output=a.json", "device=cpu")
    record = json.loads((tmp_path / "a.json").read_text())
    measured = {key for key in record if "metric/" in key}
    assert "metric/fid_digits" not in measured
    assert {"metric/is_digits", "metric/classes_covered", "metric/kid_digits", "metric/kid_spread_digits"} <= measured
    assert record["protocol"]["scores"]["KernelInceptionDistance"].items() >= {"subsets": 3, "subset_size": 10}.items()
    ran("compare", "a.json", "a.json")


def test_missing_weights_are_said_in_one_sentence(folders, tmp_path, monkeypatch, refused):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    (line,) = refused("evaluate", *folders, "metrics=inception", "output=a.json").splitlines()
    assert line.startswith("lit-gans: the Inception weights are missing: fetch https://")
    assert f"put it at {tmp_path / 'hub'}" in line
    assert line.endswith("or give its place as metrics.extractor.weights=PATH.")
