"""Scores inside classes: generators that ignore their class, or know one image of each, look bad; real images good."""

import pytest
import torch
from jaxtyping import TypeCheckError

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.digits import Digits
from lit_gans.metrics import (
    ClassAccuracy,
    ClassCoverage,
    FrechetInceptionDistance,
    InceptionScore,
    IntraFID,
)
from lit_gans.metrics.extractors.base import Features, Widths
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.scores.base import Compared


@pytest.fixture(scope="module")
def generators():
    """Features of images and the classes that were asked for: half of the real digits is compared with these."""
    digits = Digits().dataset
    features, labels = Features(*DigitsExtractor()(digits.images)), digits.labels[1::2]

    def every_second(start, index=slice(None)):
        return Features(*(rows[start::2][index] for rows in features))

    drawn = every_second(1)
    first = torch.stack([(labels == label).nonzero()[0, 0] for label in range(10)])
    return {
        "real": (every_second(0), digits.labels[::2]),
        "perfect": (drawn, labels),
        "ignores": (drawn, labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]),
        "shuffled": (drawn, (labels + 1) % 10),
        "one_each": (every_second(1, first[labels]), labels),
    }


@pytest.fixture(scope="module")
def values(generators):
    intra_fid, accuracy = IntraFID(num_classes=10, reset_real_features=False), ClassAccuracy()
    intra_fid.update(generators["real"][0], real=True, labels=generators["real"][1])
    found = {}
    for name in generators.keys() - {"real"}:
        features, labels = generators[name]
        for score in (intra_fid, accuracy):
            score.reset()
            score.update(features, real=False, labels=labels)
        inception_score, coverage = InceptionScore(), ClassCoverage()
        for score in (inception_score, coverage):
            score.update(features)
        found[name] = {
            "intra_fid": intra_fid.compute().item(),
            "accuracy": accuracy.compute()["class_accuracy"].item(),
            "is": inception_score.compute()[0].item(),
            "classes": coverage.compute().item(),
        }
    return found


def test_real_images_look_good(values):
    assert values["perfect"]["accuracy"] > 0.98
    assert values["perfect"]["intra_fid"] < 10


@pytest.mark.parametrize(("name", "accuracy"), [("ignores", 0.1), ("shuffled", 0.0)])
def test_a_generator_that_ignores_its_class_looks_bad(values, name, accuracy):
    assert values[name]["accuracy"] == pytest.approx(accuracy, abs=0.03)
    assert values[name]["intra_fid"] > 40 * values["perfect"]["intra_fid"]


def test_a_generator_of_one_image_a_class_looks_bad_where_other_scores_are_deceived(values):
    assert values["one_each"]["is"] > values["perfect"]["is"]
    assert values["one_each"]["classes"] == 10
    assert values["one_each"]["accuracy"] > 0.98
    assert values["one_each"]["intra_fid"] > 40 * values["perfect"]["intra_fid"]


def test_the_distance_is_the_mean_of_those_of_the_classes():
    generator = torch.Generator().manual_seed(0)
    features = {real: torch.randn(90, 4, generator=generator) for real in (True, False)}
    labels = {True: torch.arange(90) % 3, False: torch.arange(90) // 40}
    intra_fid, expected = IntraFID(num_classes=3), []
    for label in range(3):
        fid = FrechetInceptionDistance()
        for real, rows in features.items():
            fid.update(Features(rows[labels[real] == label], rows[labels[real] == label, :0]), real=real)
        expected.append(fid.compute())
    for real, rows in features.items():
        for batch in torch.arange(90).split(17):
            intra_fid.update(Features(rows[batch], rows[batch, :0]), real=real, labels=labels[real][batch])
    assert intra_fid.compute() == pytest.approx(torch.stack(expected).mean().item(), rel=1e-9)


def rows(num, width=4):
    return Features(
        torch.randn(num, width, generator=torch.Generator().manual_seed(num)), torch.eye(width)[:1].expand(num, -1)
    )


def test_too_few_images_in_a_class_are_refused_and_measured_on_request():
    labels = torch.tensor([0] * 9 + [1] * 4)
    for rank_deficient in (False, True):
        intra_fid = IntraFID(num_classes=2, rank_deficient=rank_deficient)
        for real in (True, False):
            intra_fid.update(rows(13), real=real, labels=labels)
        if rank_deficient:
            assert intra_fid.compute() == pytest.approx(0, abs=1e-9)
        else:
            with pytest.raises(RefusedInput, match="4 images in a class are too few for 4 features: use more than 4"):
                intra_fid.compute()


@pytest.mark.parametrize(("fewest", "sentence"), [(4, "4 images in a class"), (1, "1 image in a class")])
@pytest.mark.parametrize("few", ["real", "generated"])
def test_the_class_with_the_fewest_real_or_generated_images_decides(few, fewest, sentence):
    intra_fid = IntraFID(num_classes=2, rank_deficient=fewest == 1)
    for kind in ("real", "generated"):
        labels = torch.tensor([0] * 9 + [1] * (fewest if kind == few else 9))
        intra_fid.update(rows(len(labels)), real=kind == "real", labels=labels)
    with pytest.raises(RefusedInput, match=sentence):
        intra_fid.compute()


def test_the_rarest_class_of_real_or_generated_images_decides_whether_the_distance_is_measured():
    score, labels = IntraFID(), torch.tensor([0] * 90 + [1] * 8)
    for num_fake, fewest in {9800: 8, 49: 4, 5: 0}.items():
        compared = Compared(98, num_fake, Widths(features=8, classes=2), 0, labels)
        assert score.unmeasurable(compared).startswith(f"{fewest} image"), num_fake
    assert score.unmeasurable(Compared(98, 9800, Widths(features=7, classes=2), 0, labels)) is None


@pytest.mark.parametrize("make", [ClassAccuracy, lambda: IntraFID(num_classes=4)])
def test_classes_that_do_not_fit_the_images_are_refused(make):
    score = make()
    for labels, sentence in {
        None: "expected the classes of 3 images, received none",
        (0, 1): "expected the classes of 3 images, received 2",
        (-1, 0, 1): "labels range from -1 to 1, expected 0 to 3",
        (0, 1, 4): "labels range from 0 to 4, expected 0 to 3",
    }.items():
        with pytest.raises(RefusedInput, match=sentence):
            score.update(rows(3), labels=None if labels is None else torch.tensor(labels))
    with pytest.raises(RefusedInput, match="num_classes=0"):  # which would count those of the data
        IntraFID(num_classes=0)


def test_a_class_counts_from_a_fifth_of_an_equal_share_of_samples_that_are_certain():
    logits = torch.zeros(100, 4)
    logits[:60, 0], logits[60:65, 1], logits[65:69, 2], logits[69:, 3] = 20, 20, 20, 0.5  # 5 of 1, 4 of 2
    coverage = ClassCoverage()
    coverage.update(Features(logits, logits))
    assert coverage.compute() == 2


def test_real_images_do_not_count_as_those_asked_for():
    accuracy = ClassAccuracy()
    accuracy.update(rows(5), real=True)
    assert all(value.isnan() for value in accuracy.compute().values())
    accuracy.update(rows(2), real=False, labels=torch.tensor([0, 1]))
    assert accuracy.compute() == {"class_accuracy": 0.5, "class_accuracy_lowest": 0.0}


def test_the_lowest_accuracy_is_that_of_a_class_that_was_asked_for():
    accuracy, logits = ClassAccuracy(), torch.eye(4)[[0, 0, 0, 0, 1, 1, 3]]
    accuracy.update(Features(logits, logits), labels=torch.tensor([0, 0, 0, 0, 1, 3, 3]))
    assert accuracy.compute() == {"class_accuracy": 6 / 7, "class_accuracy_lowest": 0.5}


def test_what_a_class_score_cannot_know_is_refused():
    for wrong in ({"confidence": 90.0}, {"share": 2.0}):
        with pytest.raises(RefusedInput, match=r" must be in \[0, 1\]"):
            ClassCoverage(**wrong)
    coverage = ClassCoverage()
    coverage.update(Features.of_nothing(Widths(2, 10), torch.device("cpu")))
    with pytest.raises(RefusedInput, match="there are no generated images"):
        coverage.compute()
    images = torch.zeros(2, 1, 32, 32, dtype=torch.uint8)
    with pytest.raises(RefusedInput, match="IntraFID: the number of classes is unknown: pass num_classes="):
        IntraFID(DigitsExtractor()).update(images, real=True, labels=torch.zeros(2, dtype=torch.long))


def test_a_share_of_exactly_so_many_samples_counts():
    coverage = ClassCoverage(share=0.9)
    logits = torch.zeros(2500, 10)
    logits[:225, 3], logits[225:, 4] = 99, 99
    coverage.update(Features(torch.zeros(2500, 2), logits))
    assert coverage.compute() == 2


def test_images_without_an_extractor_and_a_number_in_its_place_are_refused():
    with pytest.raises(RefusedInput, match="has no extractor for images: pass one to the constructor"):
        FrechetInceptionDistance().update(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), real=True)
    with pytest.raises((RefusedInput, TypeCheckError), match="2048"):  # the tests check types first
        FrechetInceptionDistance(2048)
