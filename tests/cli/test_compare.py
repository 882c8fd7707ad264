"""`lit-gans compare`: which evaluations may be compared, and which is better."""

import copy
import json

import pytest

from lit_gans.cli.compare import compare, main
from lit_gans.cli.evaluate import evaluate
from lit_gans.common.errors import RefusedInput
from tests.cli.pictures import metrics, pictures, write


@pytest.fixture
def record(tmp_path):
    real, fake = write(tmp_path / "real", pictures(30, 0)), write(tmp_path / "fake", pictures(30, 1))
    return evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")


def test_compares_what_compares_and_names_the_better(record, tmp_path, capsys):
    other = copy.deepcopy(record)
    other["metric/fid_digits"] += 1
    other["metric/is_digits"] += 1
    other["protocol"]["weights"] = "ema"
    for name, content in (("a.json", record), ("b.json", other)):
        (tmp_path / name).write_text(json.dumps(content))
    assert main([str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {tmp_path / 'a.json'}", f"B: {tmp_path / 'b.json'}"]
    assert [line.split()[-1] for line in lines if "metric/fid_digits" in line or "metric/is_digits" in line] == [
        "A",
        "B",
    ]
    assert "note: different weights: pictures and ema" in lines
    better = compare(record, other)
    assert (better["metric/fid_digits"], better["metric/is_digits"]) == ("A", "B")
    assert better["metric/is_spread_digits"] is better["metric/recall_digits"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data_sha256", "0" * 64),
        ("num_real", 31),
        ("num_fake", 31),
        ("image_size", [32, 32]),
        ("resize", "none"),
        ("quantization", "truncated"),
        ("extractor", "inception"),
        ("extractor_sha256", "0" * 64),
        ("scores", {}),
    ],
)
def test_refuses_what_does_not_compare_and_says_why(record, field, value):
    other = copy.deepcopy(record)
    other["protocol"][field] = value
    with pytest.raises(RefusedInput, match=rf"A and B are not comparable: {field}: "):
        compare(record, other)


def test_files_that_are_no_evaluations_are_refused(tmp_path, capsys):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    assert main(["a.json"]) == 2
    assert "two files of lit-gans evaluate, not 1" in capsys.readouterr().err
    for name, sentence in (("list", "not an evaluation"), ("broken", "not an evaluation"), ("missing", "no such file")):
        assert main([str(tmp_path / f"{name}.json")] * 2) == 2
        assert sentence in capsys.readouterr().err
