"""Two processes measure what one does, whatever their shares."""

from unittest.mock import patch

import pytest

from lit_gans.metrics import cache
from tests.metrics.cells import REAL, Pixels, add, all_scores, evaluate, evaluator_of, values_alone
from tests.strategies.ranks import run

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def halves():
    one = evaluator_of(num_classes=4)
    one.add_real(REAL)
    return one.real_halves


@pytest.mark.parametrize(
    ("fake_ends", "batch_size", "extracted"),
    [
        ((31, 61), 16, [64, 36]),
        ((61, 61), 16, [64, 36]),  # one rank has no generated images
        ((0, 61), 16, [64, 36]),
        ((31, 61), 100, [100, 0]),  # one rank has no real images
        ((31, 61), 7, [56, 44]),
    ],
)
def test_two_ranks_measure_what_scores_alone_do(halves, tmp_path, fake_ends, batch_size, extracted):
    found = run("tests.metrics.cells.evaluate", tmp_path, fake_ends=fake_ends, batch_size=batch_size)
    assert [rank["extracted"] for rank in found] == extracted
    assert found[0]["values"] == found[1]["values"]
    assert found[0]["values"] == pytest.approx(values_alone(), rel=1e-6)
    assert found[0]["halves"] == pytest.approx(halves, rel=1e-6)


def test_all_ranks_take_what_the_first_finds_in_the_cache(halves, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    arguments = {"store": True, "fake_ends": (31, 61)}
    first, second = (run("tests.metrics.cells.evaluate", tmp_path, **arguments) for _ in range(2))
    assert [[rank["extracted"] for rank in ranks] for ranks in (first, second)] == [[64, 36], [0, 0]]
    assert second[1]["values"] == pytest.approx(values_alone(), rel=1e-6)
    assert second[1]["halves"] == pytest.approx(halves, rel=1e-6)


def stored(**arguments):
    """Measures as `evaluate` does. While the statistics are stored, torchmetrics must not gather by itself, because
    nccl cannot gather the rows, which are in main memory.
    """
    save = cache.save

    def checked(*given):
        with patch("torchmetrics.metric.gather_all_tensors", side_effect=AssertionError("gathered by torchmetrics")):
            save(*given)

    with patch.object(cache, "save", checked):
        return evaluate(**arguments)


def test_the_statistics_are_gathered_as_every_other_state(tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    found = run(f"{__name__}.stored", tmp_path, store=True, fake_ends=(31, 61))
    assert found[0]["values"] == pytest.approx(values_alone(), rel=1e-6)


@pytest.mark.parametrize("ends", [(31, 100), (100, 100)])  # the last: one rank has none
def test_scores_alone_are_the_same_on_two_ranks(tmp_path, ends):
    expected = {name: add(score).named(score.compute()) for name, score in all_scores(Pixels()).items()}
    for found in run("tests.metrics.cells.scores", tmp_path, ends=ends):
        assert found.keys() == expected.keys()
        for name, values in found.items():
            assert values == pytest.approx(expected[name], rel=1e-6)


@pytest.mark.parametrize("has_digest", [True, False])
def test_a_rank_reads_its_share_of_the_real_images_and_rank_0_alone_reads_for_a_digest(tmp_path, has_digest):
    found = run("tests.metrics.cells.counted", tmp_path, has_digest=has_digest)
    assert [rank["extracted"] for rank in found] == [[*range(64)], [*range(64, 100)]]
    assert [rank["chosen"] for rank in found] == [[] if has_digest else [*range(100)], []]
    assert found[0]["values"] == found[1]["values"] == pytest.approx(values_alone(), rel=1e-6)
