"""Our scores beside torchmetrics' own on the same features: equal, or different by design as the guide explains."""

import pytest
import torch
from torch import nn
from torchmetrics import image
from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance as TheirMiFID

from lit_gans import metrics
from lit_gans.common.noise import mix
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.base import FeatureScore

WIDTH = 8
pytestmark = pytest.mark.filterwarnings("ignore:.*will save all extracted features in buffer")  # theirs say so


class Given(nn.Module):
    """Takes features for images."""

    num_features = WIDTH

    def forward(self, features):
        return features


def rows(num, seed, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    drawn = torch.randn(num, WIDTH, generator=generator, dtype=torch.float64)
    return (scale * drawn @ mixing + shift).float().double()  # both compute in float64; ours stores float32


def added(score, real, fake):
    """Updates a score of ours or of torchmetrics with batches of features."""
    for is_real, features in ((True, real), (False, fake)):
        for batch in features.split(37):
            ours = isinstance(score, FeatureScore)
            score.update(Features(batch, batch) if ours else batch, real=is_real)
    return score


@pytest.fixture
def pair():
    return rows(300, 0), rows(200, 1, 1.2, 0.3)


@pytest.mark.parametrize("num", [200, 6])  # 6 are fewer than the features
def test_frechet_distance(pair, num):
    real, fake = pair[0], pair[1][:num]
    found = added(metrics.FrechetInceptionDistance(), real, fake).compute()
    expected = added(image.FrechetInceptionDistance(Given()), real, fake).compute()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_inception_score_of_the_same_splits_and_a_spread_over_n(pair):
    _, logits = pair
    ours = metrics.InceptionScore(seed=4)
    ours.update(Features(logits, logits))
    mean, spread = ours.compute()
    theirs = image.InceptionScore(Given(), splits=10)
    theirs.update(logits)
    torch.manual_seed(mix(4, "inception score"))  # theirs shuffles with the global ones
    their_mean, their_spread = theirs.compute()
    assert mean.item() == pytest.approx(their_mean.item(), rel=1e-6)
    assert spread.item() == pytest.approx(their_spread.item() * (9 / 10) ** 0.5, rel=1e-6)


def test_kernel_distance_of_all_images(pair):
    """Their subsets are drawn with the global random numbers; here each is all images."""
    real, fake = pair[0][:200], pair[1]
    ours, theirs = (
        added(score, real, fake).compute()
        for score in (
            metrics.KernelInceptionDistance(subsets=1, subset_size=200),
            image.KernelInceptionDistance(Given(), subsets=1, subset_size=200),
        )
    )
    assert ours[0].item() == pytest.approx(theirs[0].item(), rel=1e-6)


def test_memorization_is_that_of_generated_images_and_not_of_real_ones(pair):
    """Theirs looks for a generated image near each real one; ours, as the paper, for a real one near each generated."""
    real, fake = pair

    def ours(eps, *sets):
        score = metrics.MemorizationInformedFrechetInceptionDistance(cosine_distance_eps=eps)
        return added(score, *sets).compute().item()

    def theirs(eps, *sets):
        return added(TheirMiFID(Given(), cosine_distance_eps=eps), *sets).compute().item()

    assert ours(1.0, real, fake) == pytest.approx(theirs(1.0, fake, real), rel=1e-6)
    copies = real[:20].repeat(10, 1)  # a generator that knows 20 real images by heart
    fid = added(metrics.FrechetInceptionDistance(), real, copies).compute().item()
    assert theirs(0.02, real, copies) == pytest.approx(fid, rel=1e-6), "theirs does not notice"
    assert ours(0.02, real, copies) > 1e6 * fid
