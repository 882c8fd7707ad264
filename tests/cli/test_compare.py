"""`lit-gans compare`: which evaluations may be compared, and which is better."""

import copy
import json

import pytest

from lit_gans.cli.compare import compare
from lit_gans.cli.evaluate import evaluate
from lit_gans.common.errors import RefusedInput
from tests.cli.pictures import metrics, pictures, write


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The record of an evaluation."""
    folder = tmp_path_factory.mktemp("measured")
    real, fake = write(folder / "real", pictures(30, 0)), write(folder / "fake", pictures(30, 1))
    return evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")


@pytest.fixture
def files(measured, tmp_path):
    """Writes the record and another one, and returns the paths of both."""

    def write_both(other):
        for name, content in (("a.json", measured), ("b.json", other)):
            (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / "a.json"), str(tmp_path / "b.json")

    return write_both


def test_compares_what_compares_and_names_the_better(measured, files, capsys):
    other = copy.deepcopy(measured)
    other["metric/fid_digits"] += 1
    other["metric/is_digits"] += 1
    other["protocol"]["weights"] = "ema"
    one, two = files(other)
    better = compare(one, two)
    assert (better["metric/fid_digits"], better["metric/is_digits"]) == ("A", "B")
    assert better["metric/is_spread_digits"] == better["metric/recall_digits"] == ""
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {one}", f"B: {two}"]
    assert [line.split()[-2] for line in lines if "fid_digits " in line or "is_digits " in line] == ["A", "B"]
    assert "note: different weights: pictures and ema" in lines


def test_a_judge_that_a_generator_was_trained_against_is_refused(measured, files):
    other = copy.deepcopy(measured)
    other["protocol"]["trained_against"] = ["efficientnet_lite0"]
    compare(*files(other))
    other["protocol"]["trained_against"] = ["efficientnet_lite0", "digits"]
    with pytest.raises(RefusedInput, match=r"b\.json is no comparison: digits judges a generator that was trained"):
        compare(*files(other))


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
def test_refuses_what_does_not_compare_and_says_why(measured, files, field, value):
    other = copy.deepcopy(measured)
    other["protocol"][field] = value
    with pytest.raises(RefusedInput, match=rf"are not comparable: {field}: "):
        compare(*files(other))


def test_two_files_are_compared(refused):
    assert "two files of lit-gans evaluate, not 1" in refused("compare", "a.json")
