import numpy as np
import pytest
import scipy.linalg
import torch

from lit_gans.errors import RefusedInput
from lit_gans.metrics.evaluation import Evaluation, to_uint8
from lit_gans.metrics.extractor import Extractor


class Pixels(Extractor):
    """Features and logits are the pixels themselves, so that everything is known."""

    name = "pixels"
    num_features = 4
    num_classes = 4

    def forward(self, images):
        pixels = images.flatten(1).float() / 10
        return pixels, pixels


def images(num, seed, shift=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, 100, (num, 1, 2, 2), generator=generator) + shift).to(torch.uint8)


def plain_fid(real, fake):
    """Heusel et al. 2017, equation 6, on the moments that numpy computes."""
    real, fake = (x.flatten(1).double().numpy() / 10 for x in (real, fake))
    covariances = [np.cov(x, rowvar=False) for x in (real, fake)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    return ((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)


@pytest.fixture
def evaluation():
    evaluation = Evaluation(Pixels(), torch.device("cpu"))
    evaluation.add_real(images(200, 0).split(32))
    return evaluation


def test_fid_is_the_closed_form_and_a_second_measurement_starts_anew(evaluation):
    for fake in (images(100, 1), images(100, 2, shift=50)):
        values = evaluation.measure(fake.split(33), 100)
        assert values["metric/fid_pixels"] == pytest.approx(plain_fid(images(200, 0), fake), rel=1e-5)
    assert evaluation.measure(images(200, 0).split(50), 200)["metric/fid_pixels"] == pytest.approx(0, abs=1e-3)


def test_the_halves_are_every_second_image(evaluation):
    whole = images(200, 0)
    assert evaluation.real_halves() == pytest.approx(plain_fid(whole[::2], whole[1::2]), rel=1e-5)


def test_inception_score_of_known_probabilities(evaluation):
    certain = torch.full((40, 4), 0, dtype=torch.uint8)
    certain[torch.arange(40), torch.arange(40) % 4] = 250
    same = certain[:1].expand(40, -1)
    assert evaluation.measure([same.reshape(40, 1, 2, 2)], 40)["metric/is_pixels"] == pytest.approx(1)
    score = evaluation.measure([certain.reshape(40, 1, 2, 2)], 40)["metric/is_pixels"]
    assert 2 < score <= 4, "each split of four images holds two to four classes"


def test_a_class_counts_with_two_percent_of_confident_samples(evaluation):
    fake = torch.zeros(100, 4, dtype=torch.uint8)
    fake[:60, 0], fake[60:62, 1], fake[62:63, 2], fake[63:, 3] = 200, 200, 200, 5  # 2 % of class 1, 1 % of class 2
    assert evaluation.measure([fake.reshape(100, 1, 2, 2)], 100)["metric/classes_covered"] == 2


def test_the_training_s_random_numbers_stay(evaluation):
    before = torch.get_rng_state()
    evaluation.measure([images(40, 0)], 40)
    assert torch.equal(before, torch.get_rng_state())


def test_guards(evaluation):
    with pytest.raises(RefusedInput, match="too few for 10 splits"):
        evaluation.measure([images(10, 0)], 10)
    with pytest.raises(FloatingPointError, match="diverged"):
        to_uint8(torch.tensor([[[[float("nan")]]]]))
    assert to_uint8(torch.tensor([[[[0.0, 0.4999 / 255, 0.5001 / 255, 1.0]]]])).flatten().tolist() == [0, 0, 1, 255]
