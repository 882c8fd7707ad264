import math

import numpy as np
import pytest
import scipy.linalg
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.metrics import (
    FrechetInceptionDistance,
    InceptionScore,
    KernelInceptionDistance,
)
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.scores.base import StoredFeatures
from tests.metrics.cells import Pixels, all_scores, evaluator_of, images, measure


def plain_fid(real, fake):
    """Heusel et al. 2017, equation 6, on the moments that numpy computes."""
    real, fake = (Pixels()(x)[0].double().numpy() for x in (real, fake))
    covariances = [np.cov(x, rowvar=False) for x in (real, fake)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    return ((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)


def test_fid_is_the_closed_form_and_a_second_measurement_starts_anew(evaluator):
    for fake in (images(100, 1), images(100, 2, shift=50)):
        values = measure(evaluator, fake, 33)
        assert values["metric/fid_pixels"] == pytest.approx(plain_fid(images(200, 0), fake), rel=1e-5)
    assert measure(evaluator, images(200, 0), 50)["metric/fid_pixels"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (150, 1), (150, 25)])
def test_the_halves_are_every_second_image_also_with_means_far_larger_than_deviations(shift, scale):
    """The covariances come from streamed sums in float64, where those of numpy subtract the mean from each image."""
    whole = images(200, 0) // scale + shift
    one = evaluator_of(Pixels(), {"fid": FrechetInceptionDistance()})
    one.add_real(whole)
    assert one.real_halves == pytest.approx(plain_fid(whole[::2], whole[1::2]), rel=1e-9)


def test_three_images_have_no_halves_but_are_measured():
    one = evaluator_of(Pixels(), {"fid": FrechetInceptionDistance()})
    one.add_real(images(3, 0))
    assert math.isnan(one.real_halves)
    assert measure(one, images(100, 1))["metric/fid_pixels"] > 0


def test_inception_score_of_known_probabilities(evaluator):
    certain = torch.full((40, 4), 0, dtype=torch.uint8)
    certain[torch.arange(40), torch.arange(40) % 4] = 250
    same = certain[:1].expand(40, -1)
    assert measure(evaluator, same.reshape(40, 1, 2, 2))["metric/is_pixels"] == pytest.approx(1)
    score = measure(evaluator, certain.reshape(40, 1, 2, 2))["metric/is_pixels"]
    assert 2 < score <= 4, "each split of four images holds two to four classes"


def test_a_class_counts_with_two_percent_of_confident_samples(evaluator):
    fake = torch.zeros(100, 4, dtype=torch.uint8)
    fake[:60, 0], fake[60:62, 1], fake[62:63, 2], fake[63:, 3] = 200, 200, 200, 5  # 2 % of class 1, 1 % of class 2
    assert measure(evaluator, fake.reshape(100, 1, 2, 2))["metric/classes_covered"] == 2


def test_the_training_s_random_numbers_stay(evaluator):
    before = torch.get_rng_state()
    measure(evaluator, images(40, 0))
    assert torch.equal(before, torch.get_rng_state())


def plain_inception_score(pixels, seed):
    """Salimans et al. 2016: exp of the mean KL of p(y|x) and p(y), the mean over ten splits of the shuffled samples."""
    with torch.random.fork_rng():
        torch.manual_seed(mix(seed, "inception score"))
        logits = pixels[torch.randperm(len(pixels))].double().numpy() / 10
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    scores = []
    for part in np.array_split(p, 10):
        scores.append(np.exp((part * (np.log(part) - np.log(part.mean(0)))).sum(1).mean()))
    return np.mean(scores)


@pytest.mark.parametrize("seed", [0, 5])
def test_inception_score_is_the_plain_computation_on_the_same_shuffle(seed):
    evaluator, fake = evaluator_of(Pixels(), seed=seed), images(100, 3)
    evaluator.add_real(images(200, 0))
    value = measure(evaluator, fake, 17)["metric/is_pixels"]
    assert value == pytest.approx(plain_inception_score(fake.flatten(1), seed), rel=1e-5)
    assert value == measure(evaluator, fake, 50)["metric/is_pixels"]


def test_an_extractor_without_classes_of_the_data_covers_none():
    class Unnamed(Pixels):
        num_classes = 0

    evaluator = evaluator_of(Unnamed())
    with pytest.raises(RuntimeError, match="no real images to compare with"):
        evaluator.measure([])
    evaluator.add_real(images(50, 0))
    names = {f"metric/{name}_pixels" for name in ("fid", "is", "is_spread")}
    assert set(measure(evaluator, images(40, 1))) == names


def test_says_how_much_is_stored_once_for_all_scores_that_need_it():
    class Wide(Pixels):
        num_features, num_logits = 2048, 1008  # as Inception

    stored = {"kid": 4 * 2048 * 300, "inception_score": 4 * 1008 * 100, "fid": 0, "class_coverage": 0}
    for name, expected in {**stored, "prdc": 4 * 2048 * 300}.items():
        one = evaluator_of(Wide(), {name: all_scores()[name]})
        one.leave_out(200, (1, 2, 2))
        assert one.stored_bytes() == expected, name
    every = evaluator_of(Wide(), all_scores())
    every.leave_out(200, (1, 2, 2))
    assert every.stored_bytes() == sum(stored.values())


def test_what_is_stored_is_what_was_said(evaluator):
    every = evaluator_of(Pixels(), all_scores())
    every.add_real(images(200, 0))
    measure(every, images(100, 1))
    lists = [state for score in every.scores.values() for name in score.lists for state in score.metric_state[name]]
    stored = {rows.untyped_storage().data_ptr(): rows.untyped_storage().nbytes() for rows in lists}
    assert sum(stored.values()) == every.stored_bytes()


def test_one_pass_of_the_extractor_serves_all_scores():
    extractor, seen = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    every = evaluator_of(extractor, all_scores())
    every.add_real(images(200, 0))
    assert sum(seen) == 200
    measure(every, images(100, 1))
    assert sum(seen) == 300


def test_widths_that_are_not_stated_are_those_of_an_image():
    class Unstated(Pixels):
        num_features = num_logits = None

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels.repeat(1, 2), logits[:, :3]

    scores = {"kid": KernelInceptionDistance(subsets=2, subset_size=10), "inception_score": InceptionScore()}
    evaluator = evaluator_of(Unstated(), scores)
    evaluator.leave_out(200, (1, 2, 2))
    assert evaluator.stored_bytes() == 4 * (8 * 300 + 3 * 100)


def test_scores_that_few_images_or_no_logits_allow_are_measured_and_the_others_say_why():
    class Features(Pixels):
        num_classes = num_logits = 0

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels, logits[:, :0]

    scores = all_scores() | {"kid": KernelInceptionDistance()}
    evaluator = evaluator_of(Features(), scores, num_samples=64)
    evaluator.add_real(images(40, 0))
    assert list(evaluator.scores) == ["fid", "mifid", "prdc"]
    assert evaluator.left_out.keys() == {"inception_score", "kid"}
    assert "no class logits" in evaluator.left_out["inception_score"]
    assert "40 images are too few" in evaluator.left_out["kid"]
    assert measure(evaluator, images(64, 1)).keys() == evaluator.directions.keys()
    with pytest.raises(RefusedInput, match="asked for cannot be measured: kid: 40 images"):
        Evaluator(Features(), scores, 64, required=["kid"]).add_real(images(40, 0))


class MeanDistance(StoredFeatures):
    """A score as somebody else's file defines it."""

    directions = {"mean_distance": "min"}

    def __init__(self, feature=None, power: float = 1.0, **kwargs):
        super().__init__(feature, **kwargs)
        self.power = power

    def compute(self):
        real, fake = self.stored()
        return (real.mean(0) - fake.mean(0)).norm() ** self.power


def test_a_score_of_one_s_own_is_one_class():
    evaluator = evaluator_of(Pixels(), {"mine": MeanDistance(power=2.0), "fid": FrechetInceptionDistance()})
    evaluator.add_real(images(200, 0))
    real, fake = (Pixels()(rows)[0].mean(0) for rows in (images(200, 0), images(100, 1)))
    found = measure(evaluator, images(100, 1))
    assert found["metric/mean_distance_pixels"] == pytest.approx(((real - fake) ** 2).sum().item(), rel=1e-5)
    assert evaluator.scores["mine"].settings() == {"power": 2.0}
    assert evaluator.directions["metric/mean_distance_pixels"] == "min"
