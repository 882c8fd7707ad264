import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores import prdc
from lit_gans.metrics.scores.prdc import PrecisionRecallDensityCoverage, manifold_scores


def features(num, seed, scale=1.0, shift=0.0):
    return scale * torch.randn(num, 5, generator=torch.Generator().manual_seed(seed)) + shift


@pytest.mark.parametrize(("scale", "shift", "nearest"), [(1.0, 0.0, 5), (0.6, 0.4, 3), (1.5, 1.0, 1)])
@pytest.mark.parametrize("rows", [7, 1024])
def test_is_the_authors_package(scale, shift, nearest, rows, monkeypatch):
    from prdc import compute_prdc

    monkeypatch.setattr(prdc, "_ROWS", rows)
    real, fake = features(90, 0), features(70, 1, scale, shift)
    expected = compute_prdc(real.double().numpy(), fake.double().numpy(), nearest)
    found = manifold_scores(real, fake, nearest)
    assert found == pytest.approx(expected, abs=1e-12)
    assert found["precision"] > 0


def test_points_on_a_line_by_hand():
    real, fake = torch.tensor([[0.0], [1.0], [3.0], [10.0]]), torch.tensor([[0.5], [2.5], [30.0], [31.5]])
    # radii to the nearest neighbor: real 1, 1, 2, 7; fake 2, 2, 1.5, 1.5
    found = manifold_scores(real, fake, 1)
    # 0.5 lies in the balls of 0 and 1, 2.5 in that of 3, and 0.5 not in that of 3 (2.5 away)
    assert found["precision"] == 2 / 4
    assert found["density"] == 3 / 4
    assert found["recall"] == 3 / 4  # 0, 1 and 3
    assert found["coverage"] == 3 / 4  # the nearest fake of 10 is 7.5 away, its ball reaches 7


def test_far_apart_is_nothing():
    assert set(manifold_scores(features(30, 0), features(30, 1, shift=100.0), 5).values()) == {0.0}


def test_refusals():
    assert "5 images are too few for nearest=5: use more than 5" in PrecisionRecallDensityCoverage().too_few(100, 5)
    assert PrecisionRecallDensityCoverage().too_few(6, 6) is None
    with pytest.raises(RefusedInput, match="nearest=0"):
        PrecisionRecallDensityCoverage(nearest=0)
