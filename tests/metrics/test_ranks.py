"""Two processes measure what one does, whatever their shares."""

import pytest

from tests.metrics.cells import Pixels, all_scores, evaluator, images
from tests.strategies.ranks import run


@pytest.fixture(scope="module")
def alone():
    one = evaluator()
    one.add_real(images(100, 0))
    return one.measure(images(61, 1).split(8)), one.real_halves


@pytest.mark.parametrize("fake_ends", [(31, 61), (61, 61), (0, 61)])  # the last two: one rank has none
def test_two_ranks_measure_what_one_does(alone, tmp_path, fake_ends):
    found = run("tests.metrics.cells.evaluate", tmp_path, fake_ends=fake_ends)
    assert found[0]["values"] == found[1]["values"]
    assert found[0]["values"] == pytest.approx(alone[0], rel=1e-6)
    assert found[0]["halves"] == pytest.approx(alone[1], rel=1e-6)
    assert len(alone[0]) == 11


@pytest.mark.parametrize(("real_size", "extracted"), [(100, [100, 0]), (7, [56, 44])])
def test_a_rank_without_real_images_and_batches_of_an_odd_size(alone, tmp_path, real_size, extracted):
    found = run("tests.metrics.cells.evaluate", tmp_path, fake_ends=(31, 61), real_size=real_size)
    assert [rank["extracted"] for rank in found] == extracted
    assert found[1]["values"] == pytest.approx(alone[0], rel=1e-6)
    assert found[0]["halves"] == pytest.approx(alone[1], rel=1e-6)


def test_all_ranks_take_what_the_first_finds_in_the_cache(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    arguments = {"store": True, "fake_ends": (31, 61)}
    first, second = (run("tests.metrics.cells.evaluate", tmp_path, **arguments) for _ in range(2))
    assert [[rank["extracted"] for rank in ranks] for ranks in (first, second)] == [[64, 36], [0, 0]]
    assert second[1]["values"] == pytest.approx(alone[0], rel=1e-6)
    assert second[1]["halves"] == pytest.approx(alone[1], rel=1e-6)


@pytest.mark.parametrize("ends", [(31, 100), (100, 100)])  # the last: one rank has none
def test_metrics_alone_are_the_same_on_two_ranks_also_after_a_value_that_was_refused(tmp_path, ends):
    expected = {}
    for name, score in all_scores(Pixels()).items():
        score.update(images(100, 0), real=True)
        score.update(images(61, 1), real=False)
        expected[name] = score.named(score.compute())
    for found, refused in run("tests.metrics.cells.scores", tmp_path, ends=ends):
        assert set(refused) == expected.keys() - {"class_coverage"}, "each needs images"
        assert found.keys() == expected.keys()
        for name, values in found.items():
            assert values == pytest.approx(expected[name], rel=1e-6)
