import pytest
import torch
from torch.nn.functional import normalize
from torchmetrics.image.mifid import _compute_cosine_distance

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores import mifid
from lit_gans.metrics.scores.fid import Gaussian, frechet_distance
from lit_gans.metrics.scores.mifid import MemorizationInformedFrechetInceptionDistance as MiFID
from lit_gans.metrics.scores.mifid import memorization_distance


def features(num, seed, width=3):
    return torch.rand(num, width, generator=torch.Generator().manual_seed(seed)) + 0.1


def compute(real, fake, threshold):
    score = MiFID(cosine_distance_eps=threshold)
    score.update(Features(real, real[:, :0]), real=True)
    score.update(Features(fake, fake[:, :0]), real=False)
    return score.compute().item()


def test_the_distance_is_that_of_each_fake_to_its_nearest_real(monkeypatch):
    monkeypatch.setattr(mifid, "_ROWS", 7)
    real, fake = features(40, 0), features(30, 1)
    expected = sum(min(1 - abs(normalize(x, dim=0) @ normalize(y, dim=0)) for y in real) for x in fake) / 30
    assert memorization_distance(real, fake) == pytest.approx(expected.item(), abs=1e-6)
    # torchmetrics takes the mean over its first argument
    assert memorization_distance(real, fake) == pytest.approx(
        _compute_cosine_distance(fake, real, 2.0).item(), abs=1e-6
    )


def test_close_to_the_data_divides_and_far_does_not():
    real, fake = features(40, 0), features(30, 1)
    distance = memorization_distance(real, fake)
    fid = frechet_distance(*(Gaussian(rows.double().mean(0), rows.double().T.cov()) for rows in (real, fake)))
    assert compute(real, fake, 1.0) == pytest.approx(fid / distance, rel=1e-9)
    assert compute(real, fake, distance / 2) == pytest.approx(fid, rel=1e-9)


def test_copies_of_the_data_have_no_distance():
    rows = features(40, 0)
    assert memorization_distance(rows, rows.flip(0)[:10]) == pytest.approx(0, abs=1e-12)
    assert "1 image has no covariance: use at least 2" in MiFID().too_few(1, 40)
    assert MiFID().too_few(2, 2) is None
    with pytest.raises(RefusedInput, match="cosine_distance_eps=0"):
        MiFID(cosine_distance_eps=0.0)
