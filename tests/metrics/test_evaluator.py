"""An evaluator gives what scores alone give, from one pass of the extractor; what it leaves out, stores and refuses."""

import pytest
import torch

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8
from lit_gans.metrics import (
    FrechetInceptionDistance,
    KernelInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.evaluator import Evaluator, choose_together, extract_together, measure_together
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.base import StoredFeatures
from tests.metrics.cells import ASKED, FAKE, REAL, Labeled, Pixels, all_scores, evaluator_of, images, values_alone
from tests.metrics.scores.test_fid import plain_fid

FID = {"fid": FrechetInceptionDistance()}


class Unknowing(Pixels):
    """Its logits are not those of the data's classes."""

    num_classes = 0


class WithoutLogits(Unknowing):
    num_logits = 0

    def forward(self, images):
        pixels, logits = super().forward(images)
        return pixels, logits[:, :0]


def measured(real=REAL, extractor=None, scores=None, **settings):
    """Returns an evaluator with real images, and its values."""
    evaluator = evaluator_of(extractor, scores, **settings)
    evaluator.add_real(real)
    labels = ASKED[: evaluator.num_samples] % evaluator.num_classes if evaluator.num_classes else None
    return evaluator, evaluator.measure(FAKE[: evaluator.num_samples], labels)


def test_values_are_those_of_the_scores_alone_from_one_pass_and_the_training_s_random_numbers_stay():
    extractor, seen = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    state = torch.get_rng_state()
    evaluator, values = measured(extractor=extractor, num_classes=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert sum(seen) == 161
    assert values == pytest.approx(values_alone(), rel=1e-9)
    names = (
        "is",
        "is_spread",
        "kid",
        "kid_spread",
        "cmmd",
        "mifid",
        "precision",
        "recall",
        "density",
        "coverage",
        "intra_fid",
    )
    pixels = {f"metric/{name}_pixels" for name in ("fid", *names, "class_accuracy", "class_accuracy_lowest")}
    assert values.keys() == pixels | {"metric/classes_covered"}
    assert evaluator.directions.keys() == values.keys()
    assert evaluator.measure(FAKE.split(7), ASKED) == pytest.approx(values, rel=1e-9), "a measurement starts anew"
    assert evaluator.measure(images(61, 2), ASKED)["metric/fid_pixels"] != values["metric/fid_pixels"]


class Sums(Pixels):
    """Another extractor, whose features are fewer."""

    name = "sums"
    num_features = 2

    def forward(self, images):
        pixels, logits = super().forward(images)
        return pixels.cumsum(1)[:, 2:], logits


def test_several_evaluators_share_one_pass_over_the_images():
    alone = [measured(extractor=extractor, num_classes=4) for extractor in (Pixels(), Sums())]
    reads = []

    class Read(Labeled):
        def real_batches(self, batch_size=256):
            reads.append("real")
            return super().real_batches(batch_size)

    def generated():
        reads.append("generated")
        yield from FAKE.split(7)

    evaluators = [evaluator_of(extractor, num_classes=4) for extractor in (Pixels(), Sums())]
    choose_together(evaluators, Read())
    extract_together(evaluators, Read())
    values = measure_together(evaluators, generated(), ASKED)
    for (one, expected), evaluator, found in zip(alone, evaluators, values, strict=True):
        assert found == pytest.approx(expected, rel=1e-9)
        assert evaluator.real_halves == pytest.approx(one.real_halves, rel=1e-9)
    assert reads == ["real", "real", "generated"], "once for the digest, once for the features"


def test_an_evaluator_with_stored_statistics_is_left_out_of_the_pass_over_the_real_images(monkeypatch, tmp_path):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path))
    evaluator_of(scores=FID).add_real(REAL, store=True)
    evaluators, calls = [evaluator_of(extractor, FID) for extractor in (Pixels(), Sums())], []
    for evaluator in evaluators:
        evaluator.extractor.register_forward_hook(lambda extractor, given, _: calls.append(extractor.name))
    choose_together(evaluators, REAL)
    extract_together(evaluators, REAL, store=True)
    assert {*calls} == {"sums"}
    _, expected = measured(scores=FID)
    assert measure_together(evaluators, FAKE)[0] == pytest.approx(expected, rel=1e-9)


def test_the_seed_of_the_evaluator_is_that_of_its_scores():
    one, other = (measured(seed=seed)[1] for seed in (0, 1))
    assert one["metric/fid_pixels"] == other["metric/fid_pixels"]
    for name in ("is", "kid"):
        assert one[f"metric/{name}_pixels"] != other[f"metric/{name}_pixels"]


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (150, 1), (150, 25)])
def test_the_halves_are_every_second_image_also_with_means_far_larger_than_deviations(shift, scale):
    """The covariances come from streamed sums in float64, where those of numpy subtract the mean from each image."""
    whole = images(200, 0) // scale + shift
    evaluator = evaluator_of(scores=FID)
    evaluator.add_real(whole)
    assert evaluator.real_halves == pytest.approx(plain_fid(*(Pixels()(whole[i::2])[0] for i in (0, 1))), rel=1e-9)


def test_two_evaluators_of_the_same_scores_do_not_meet():
    one, expected = measured(scores=FID)
    evaluator_of(scores=FID).add_real(images(100, 0) // 2)
    assert one.measure(FAKE) == expected
    assert not FID["fid"].real_features_num_samples


def test_features_are_stored_once_for_all_scores_that_need_them():
    evaluator, _ = measured(scores={name: all_scores()[name] for name in ("kid", "prdc", "mifid")})
    for state, num in (("real_features", 100), ("fake_features", 61)):
        rows = [score.rows(state) for score in evaluator.scores.values()]
        assert [len(one) for one in rows] == [num] * 3
        assert len({one.data_ptr() for one in rows}) == 1


class OfHalvedFeatures(FrechetInceptionDistance):
    """Its states are not those of its base class, although it defines neither `add_states` nor `update_features`."""

    directions = {"halved": "min"}

    def extracted(self, imgs):
        features, logits = super().extracted(imgs)
        return Features(features / 2, logits)


class Halves:
    def extracted(self, imgs):
        features, logits = super().extracted(imgs)
        return Features(features / 2, logits)


class Mixed(Halves, FrechetInceptionDistance):
    directions = {"mixed": "min"}


class Powers(StoredFeatures):
    """Its states depend on an argument."""

    directions = {"power": "min"}

    def __init__(self, feature=None, power=1, **kwargs):
        super().__init__(feature, **kwargs)
        self.power = power

    def update_features(self, features, logits, real):
        super().update_features(features**self.power, logits, real)

    def compute(self):
        return self.stored()[1].mean()


class Other(Powers):
    directions = {"other": "min"}


@pytest.mark.parametrize("make", [OfHalvedFeatures, Mixed])
def test_a_score_with_other_states_than_its_base_class_does_not_share_them(make):
    (name,) = make.directions
    _, alone = measured(scores={name: make()})
    _, beside = measured(scores={**FID, name: make()})
    assert beside[f"metric/{name}_pixels"] == pytest.approx(alone[f"metric/{name}_pixels"], rel=1e-9)
    assert beside["metric/fid_pixels"] == pytest.approx(4 * alone[f"metric/{name}_pixels"], rel=1e-9)


def test_scores_share_states_only_if_the_arguments_of_the_states_are_equal():
    assert Other(power=2).states_key() == Powers(power=2).states_key() != Other(power=3).states_key()


class Knows7(Pixels):
    num_logits = num_classes = 7

    def forward(self, images):
        pixels, logits = super().forward(images)
        return pixels, logits.repeat(1, 2)[:, :7]


@pytest.mark.parametrize(
    ("settings", "name", "reason"),
    [
        ({"extractor": WithoutLogits()}, "inception_score", "the extractor has no class logits"),
        ({"real": images(1, 0)}, "fid", "1 image has no covariance: use at least 2"),
        ({"real": images(100, 0), "num_classes": 4}, "intra_fid", "the real images have no classes"),
        ({"num_classes": 3}, "intra_fid", "the classes of the real images range up to 3, but the generator has 3"),
        ({"real": Labeled(5), "num_classes": 4}, "intra_fid", "3 images in a class are too few for 4 features: use"),
        ({"num_samples": 10, "num_classes": 4}, "intra_fid", "2 images in a class are too few for 4 features: use"),
        ({"extractor": Knows7(), "num_classes": 4}, "class_accuracy", "the extractor has 7 classes, but the generator"),
    ],
)
def test_what_cannot_be_measured_is_left_out_with_its_reason(settings, name, reason):
    evaluator, values = measured(**settings)
    assert reason in evaluator.left_out[name]
    assert evaluator.left_out[name].endswith(".")
    assert not evaluator.scores.keys() & evaluator.left_out.keys()
    assert values.keys() == evaluator.directions.keys()


def test_no_score_at_all_is_refused_with_every_reason():
    with pytest.raises(RefusedInput, match=r"no score can be measured: fid: 1 image .* 2; prdc: 1 images"):
        measured(images(1, 0), scores=FID | {"prdc": PrecisionRecallDensityCoverage()})
    with pytest.raises(RefusedInput, match="intra_fid: the generator has no classes; class_accuracy: the generator"):
        measured(scores={name: all_scores()[name] for name in ("intra_fid", "class_accuracy")})
    with pytest.raises(RefusedInput, match="no score can be measured: all of them are null"):
        measured(scores={"fid": None})


@pytest.mark.parametrize(
    ("extractor", "num_classes", "names"),
    [
        (Pixels(), 4, ["fid", "inception_score", "class_coverage", "intra_fid", "class_accuracy"]),
        (Pixels(), 0, ["fid", "inception_score", "class_coverage"]),
        (Unknowing(), 4, ["fid", "inception_score", "intra_fid"]),
        (Unknowing(), 0, ["fid", "inception_score"]),
    ],
)
def test_class_scores_without_known_classes_are_left_out_silently(extractor, num_classes, names):
    evaluator = Evaluator(extractor, None, 61, num_classes=num_classes)
    evaluator.choose(REAL)
    assert list(evaluator.scores) == names
    assert evaluator.left_out == {}


class Seasons(Labeled):
    class_names = ("winter", "spring", "summer", "autumn")


class KnowsClasses(Pixels):
    def __init__(self, *class_names):
        super().__init__()
        self.class_names = class_names


def test_an_extractor_of_other_classes_is_refused_where_the_generator_has_classes():
    """As many classes are not the same classes, such as glasses and hats."""
    for extractor in (Pixels(), KnowsClasses(*Seasons.class_names)):
        Evaluator(extractor, None, 61, num_classes=4).choose(Seasons())
    other = KnowsClasses("winter", "summer", "spring", "autumn")
    Evaluator(other, None, 61, num_classes=4).choose(Labeled())
    Evaluator(other, None, 61).choose(Seasons())
    with pytest.raises(RefusedInput, match=r"extractor pixels knows other classes .*: class 1 is summer, not spring;"):
        Evaluator(other, None, 61, num_classes=4).choose(Seasons())


@pytest.mark.parametrize("num_labels", [-1, 1])
def test_another_number_of_labels_than_images_is_refused(num_labels):
    evaluator = evaluator_of(num_classes=4)
    labels = torch.zeros(len(REAL.images) + num_labels, dtype=torch.int64)
    with pytest.raises(RefusedInput, match=f"received {len(labels)} labels for {len(REAL.images)} images"):
        evaluator.add_real(REAL.images, labels=labels)
    evaluator.add_real(REAL)
    labels = torch.cat([ASKED, ASKED])[: len(FAKE) + num_labels]
    with pytest.raises(RefusedInput, match=f"{len(labels)} labels for|: expected the classes of"):
        evaluator.measure(FAKE.split(7), labels)
    unlabeled = evaluator_of(scores=FID)
    unlabeled.add_real(REAL)
    with pytest.raises(RefusedInput, match=f"received {len(labels)} labels for {len(FAKE)} images"):
        unlabeled.measure(FAKE.split(7), labels)


def test_an_extractor_without_a_name_is_refused():
    class Nameless(Pixels):
        name = ""

    for make in (Evaluator, GenerativeMetrics):
        with pytest.raises(RefusedInput, match="Nameless has no name: set the class attribute `name`"):
            make(Nameless())


def test_real_images_of_an_interrupted_pass_do_not_count_twice():
    _, expected = measured(num_classes=4)
    evaluator = evaluator_of(num_classes=4)
    choose_together([evaluator], REAL)

    def interrupted(batches):
        yield next(iter(batches))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_together([evaluator], REAL, follow=interrupted)
    extract_together([evaluator], REAL)
    assert evaluator.measure(FAKE, ASKED) == pytest.approx(expected, rel=1e-9)


def test_real_images_that_are_fewer_when_they_are_read_again_are_refused():
    class Shrinks(Labeled):
        reads = 0

        def real_batches(self, batch_size=256):
            self.reads += 1
            batches = [*super().real_batches(batch_size)]
            return iter(batches if self.reads == 1 else batches[:2])

    with pytest.raises(RefusedInput, match="up to number 32, but up to number 100 when they were counted"):
        evaluator_of(num_classes=4).add_real(Shrinks())


def test_scores_of_one_key_are_refused():
    with pytest.raises(RefusedInput, match="the scores kid and small both measure metric/kid_pixels"):
        evaluator_of(scores={"kid": KernelInceptionDistance(), "small": KernelInceptionDistance(subset_size=10)})


def test_images_in_another_range_shape_or_type_do_not_reach_a_score():
    evaluator, _ = measured(num_classes=4)
    for wrong in (torch.zeros(61, 1, 2, 2), torch.zeros(61, 4, dtype=torch.uint8), FAKE.repeat(1, 2, 1, 1)):
        with pytest.raises(RefusedInput, match=r"expected uint8 \(n, c, h, w\) with 1, 3 or 4 channels"):
            evaluator.measure(wrong, ASKED)
    with pytest.raises(RefusedInput, match="Expected num_samples=61 generated images, received 39"):
        evaluator.measure(FAKE[:39], ASKED[:39])
    with pytest.raises(RuntimeError, match="no real images to compare with"):
        evaluator_of().measure([])
    with pytest.raises(RefusedInput, match=r"images have values in \[-1, 1\], expected \[0, 1\]"):
        to_uint8(torch.tensor([[[[-1.0, 1.0]]]]))
    assert to_uint8(torch.tensor([[[[0.0, 0.4999 / 255, 0.5001 / 255, 1.0]]]])).flatten().tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_is_not_finite_ends_the_measurement_before_any_linear_algebra(value):
    class Broken(Pixels):
        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels + value, logits

    with pytest.raises(FloatingPointError, match="features that are not finite"):
        evaluator_of(Broken()).add_real(images(40, 0))
    broken = torch.rand(3, 1, 2, 2)
    broken[1, 0, 1, 0] = value
    with pytest.raises(FloatingPointError, match="not finite: the training has diverged"):
        to_uint8(broken)


def test_not_more_images_than_features_warns_once_with_both_numbers(caplog):
    class Forty(Pixels):
        num_features = 40

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels.repeat(1, 10), logits

    evaluator, _ = measured(images(200, 0), Forty(), FID, num_samples=41)
    assert not caplog.messages
    evaluator.num_samples = 40
    for _ in range(2):
        evaluator.measure(FAKE[:40])
    (message,) = caplog.messages
    assert message.startswith("The number of images (40) does not exceed the number of features (40)")


def test_data_that_only_yield_all_images_are_read_once_for_the_digest_and_once_for_the_scores(monkeypatch):
    """Of a share, the images before and after it are dropped, also where batches are not those of the evaluator."""

    class Odd:
        def real_batches(self, batch_size=256):
            return iter(REAL.images.split(7))

    one = evaluator_of(scores=FID, batch_size=16)
    one.choose(Odd())
    seen = []
    one.extractor.register_forward_hook(lambda _, given, __: seen.append(given[0].clone()))
    for rank in (0, 1):
        monkeypatch.setattr("lit_gans.metrics.evaluator.rank_and_world_size", lambda rank=rank: (rank, 2))
        one.extract(Odd())
        if rank == 0:
            assert torch.equal(torch.cat(seen), REAL.images[:64])
    assert torch.equal(torch.cat(seen), REAL.images)
