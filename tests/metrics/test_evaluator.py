import numpy as np
import pytest
import scipy.linalg
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.data.images import to_uint8
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.kid import KID
from lit_gans.metrics.scores.mifid import MiFID
from lit_gans.metrics.scores.prdc import PRDC


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
    evaluation, fake = Evaluation(Pixels(), torch.device("cpu"), seed), images(100, 3)
    evaluation.add_real(images(200, 0).split(32))
    value = evaluation.measure(fake.split(17), 100)["metric/is_pixels"]
    assert value == pytest.approx(plain_inception_score(fake.flatten(1), seed), rel=1e-5)
    assert value == evaluation.measure(fake.split(50), 100)["metric/is_pixels"]


def test_an_extractor_without_classes_of_the_data_covers_none():
    class Unnamed(Pixels):
        num_classes = 0

    evaluation = Evaluation(Unnamed(), torch.device("cpu"))
    assert not evaluation.has_reference
    evaluation.add_real([images(50, 0)])
    assert evaluation.has_reference
    names = {f"metric/{name}_pixels" for name in ("fid", "is", "is_spread")}
    assert set(evaluation.measure([images(40, 1)], 40)) == names


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_value_that_is_not_finite_ends_the_measurement(value):
    broken = torch.rand(3, 1, 2, 2)
    broken[1, 0, 1, 0] = value
    with pytest.raises(FloatingPointError, match="not finite"):
        to_uint8(broken)


def test_images_in_another_range_shape_or_type_do_not_reach_the_extractor(evaluation):
    with pytest.raises(RefusedInput, match=r"images have values in \[-1, 1\], expected \[0, 1\]"):
        to_uint8(torch.tensor([[[[-1.0, 1.0]]]]))
    for wrong in (torch.zeros(40, 1, 2, 2), torch.zeros(40, 4, dtype=torch.uint8), images(40, 0).repeat(1, 2, 1, 1)):
        with pytest.raises(RefusedInput, match=r"expected uint8 \(n, c, h, w\) with 1, 3 or 4 channels"):
            evaluation.measure([wrong], 40)


def test_features_that_are_not_finite_end_before_any_linear_algebra():
    class Broken(Pixels):
        def forward(self, images):
            return super().forward(images)[0] / 0, super().forward(images)[1]

    with pytest.raises(FloatingPointError, match="features that are not finite"):
        Evaluation(Broken(), torch.device("cpu")).add_real([images(40, 0)])


def test_not_more_images_than_features_warns_once_with_both_numbers(caplog):
    class Wide(Pixels):
        num_features = 40

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels.repeat(1, 10), logits

    evaluation = Evaluation(Wide(), torch.device("cpu"))
    evaluation.add_real([images(200, 0)])
    evaluation.measure([images(41, 1)], 41)
    assert not caplog.messages
    for _ in range(2):
        evaluation.measure([images(40, 1)], 40)
    (message,) = caplog.messages
    assert message.startswith("40 images are no more than the 40 features")


def test_announced_images_must_come(evaluation):
    with pytest.raises(RefusedInput, match="Expected 40 generated images, received 39"):
        evaluation.measure([images(39, 1)], 40)


def test_says_how_much_is_kept():
    evaluation = Evaluation(Pixels(), torch.device("cpu"), 0, [KID(2, 10)])
    evaluation.add_real([images(200, 0)])
    assert evaluation.kept_bytes(200, 100, (1, 2, 2)) == 4 * 4 * 300


def test_the_logits_of_inception_count_in_what_is_kept():
    from lit_gans.metrics.extractors.inception import InceptionExtractor

    class WithoutWeights(Pixels):
        num_features, num_logits = InceptionExtractor.num_features, InceptionExtractor.num_logits
        num_classes = InceptionExtractor.num_classes

    evaluation = Evaluation(WithoutWeights(), torch.device("cpu"), 0, [InceptionScore()])
    assert evaluation.kept_bytes(200, 100, (3, 2, 2)) == 4 * 1008 * 100


def test_widths_that_are_not_stated_are_those_of_an_image():
    class Unstated(Pixels):
        num_features = num_logits = None

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels.repeat(1, 2), logits[:, :3]

    evaluation = Evaluation(Unstated(), torch.device("cpu"), 0, [KID(2, 10), InceptionScore()])
    assert evaluation.widths((1, 2, 2)) == (8, 3)
    assert evaluation.kept_bytes(200, 100, (1, 2, 2)) == 4 * (8 * 300 + 3 * 100)


def test_scores_that_few_images_or_no_logits_allow_are_measured_and_the_others_say_why():
    class Features(Pixels):
        num_classes = 0

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels, logits[:, :0]

    scores = [FID(), InceptionScore(), KID(), MiFID(), PRDC()]
    evaluation = Evaluation(Features(), torch.device("cpu"), 0, scores)
    evaluation.leave_out(40, 64, (1, 2, 2))
    assert [type(score) for score in evaluation.scores] == [FID, MiFID, PRDC]
    assert evaluation.left_out.keys() == {"InceptionScore", "KID"}
    assert "no class logits" in evaluation.left_out["InceptionScore"]
    assert "40 images are too few for subset_size=1000" in evaluation.left_out["KID"]
    evaluation.add_real([images(40, 0)])
    assert len(evaluation.measure([images(64, 1)], 64)) == 6
