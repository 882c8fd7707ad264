"""The command line of `lit-gans evaluate`: extractors and scores by their keys."""

import json
import sys

import torch

from lit_gans.metrics import PrecisionRecallDensityCoverage
from tests.cli.pictures import pictures, write


def test_a_module_from_a_user_s_file_is_an_extractor_also_for_kid_and_prdc(tmp_path, monkeypatch, command):
    (tmp_path / "own_features.py").write_text(
        "import torch\n\n\nclass Pooled(torch.nn.Module):\n"
        "    def __init__(self, size: int = 4):\n        super().__init__()\n        self.size = size\n\n"
        "    def forward(self, images):\n"
        "        return torch.nn.functional.adaptive_avg_pool2d(images, self.size).flatten(1)\n"
    )
    monkeypatch.setattr("sys.path", list(sys.path))
    folders = [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]
    own = ["metrics=module", "metrics.extractor.module._target_=own_features.Pooled", "output=a.json", "device=cpu"]
    code, _, err = command(
        "evaluate", *folders, *own, "metrics.scores.kid.subset_size=10", "+metrics.extractor.module.size=2"
    )
    assert code == 0, err
    record = json.loads((tmp_path / "a.json").read_text())
    found = {key for key in record if key.startswith("metric/")}
    assert found == {
        f"metric/{name}_module" for name in ("fid", "kid", "kid_spread", *PrecisionRecallDensityCoverage.directions)
    }
    assert record["left_out"] == {"inception_score": "the extractor has no class logits."}
    code, _, err = command("evaluate", *folders, *own[:1])
    assert (code, "metrics.extractor.module._target_: Missing mandatory value" in err) == (2, True)
    code, _, err = command("evaluate", *folders, *own, "metrics.extractor.module.size=2")
    assert (code, "To append to your config use +metrics.extractor.module.size=2" in err) == (2, True)


def test_the_command_line_takes_scores_and_extractors(tmp_path, monkeypatch, command):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    folders = [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]
    scores = [
        "score@metrics.scores.kid=kid",
        "metrics.scores.kid.subset_size=10",
        "metrics.scores.kid.subsets=3",
        "metrics.scores.fid=null",
    ]
    code, _, err = command("evaluate", *folders, "metrics=digits", *scores, "output=a.json", "device=cpu")
    assert code == 0, err
    record = json.loads((tmp_path / "a.json").read_text())
    assert [key for key in record if "metric/" in key] == [
        *("metric/is_digits", "metric/is_spread_digits", "metric/classes_covered"),
        *("metric/kid_digits", "metric/kid_spread_digits"),
    ]
    assert record["protocol"]["scores"]["KernelInceptionDistance"].items() >= {"subsets": 3, "subset_size": 10}.items()
    assert command("compare", "a.json", "a.json")[0] == 0
    code, _, err = command("compare", "a.json", "b.json")
    assert (code, "b.json: there is no such file" in err) == (2, True)
    code, _, err = command("evaluate", *folders, "metrics=inception")
    assert (code, f"put it at {tmp_path / 'hub'}" in err) == (2, True)
    code, _, err = command("evaluate", *folders, "metrics=modes")
    assert (code, "metrics" in err) == (2, True)


def test_missing_weights_are_said_in_one_sentence(tmp_path, monkeypatch, command):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    folders = [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]
    code, _, err = command("evaluate", *folders, "metrics=inception", "output=a.json")
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("lit-gans: the Inception weights are missing: fetch https://")
    assert line.endswith("or give its place as metrics.extractor.weights=PATH.")
