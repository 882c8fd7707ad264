"""Two processes measure what one does, whatever their shares."""

import pytest
import torch

from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.evaluator import Evaluation
from tests.metrics.cells import SCORES, Pixels, images
from tests.strategies.ranks import run


@pytest.fixture(scope="module")
def alone():
    evaluation = Evaluation(Pixels(), torch.device("cpu"), 0, SCORES)
    evaluation.add_real(images(100, 0).split(16))
    return evaluation.measure(images(61, 1).split(8), 61), evaluation.real_halves()


@pytest.mark.parametrize("fake_ends", [(31, 61), (61, 61), (0, 61)])  # the last two: one rank has none
def test_two_ranks_measure_what_one_does(alone, tmp_path, fake_ends):
    found = run("tests.metrics.cells.evaluate", tmp_path, fake_ends=fake_ends)
    assert found[0]["values"] == found[1]["values"]
    assert found[0]["values"] == pytest.approx(alone[0], rel=1e-6)
    assert found[0]["halves"] == pytest.approx(alone[1], rel=1e-6)
    assert len(alone[0]) == 11


def test_a_rank_without_real_images_waits_for_nobody(alone, tmp_path):
    found = run("tests.metrics.cells.evaluate", tmp_path, fake_ends=(31, 61), real_size=100)
    assert [rank["extracted"] for rank in found] == [1, 0]
    assert found[1]["values"] == pytest.approx(alone[0], rel=1e-6)


def test_all_ranks_read_what_the_first_finds_in_the_cache(alone, tmp_path):
    arguments = {"cache": tmp_path / "statistics.safetensors", "fake_ends": (31, 61)}
    first, second = (run("tests.metrics.cells.evaluate", tmp_path, **arguments) for _ in range(2))
    assert [[rank["extracted"] for rank in ranks] for ranks in (first, second)] == [[4, 3], [0, 0]]
    assert second[1]["values"] == pytest.approx(alone[0], rel=1e-6)


@pytest.mark.parametrize("ends", [(31, 100), (100, 100)])  # the last: one rank has none
def test_metrics_alone_are_the_same_on_two_ranks(tmp_path, ends):
    expected = FrechetInceptionDistance(Pixels())
    expected.update(images(100, 0), real=True)
    expected.update(images(61, 1), real=False)
    for found in run("tests.metrics.cells.scores", tmp_path, ends=ends):
        assert found["FrechetInceptionDistance"].item() == pytest.approx(expected.compute().item(), rel=1e-6)
