"""An evaluator measures generators with classes: which class each image belongs to, and what is left out without."""

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import ClassAccuracy, FrechetInceptionDistance, IntraFID
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.base import Features
from tests.metrics.cells import Labeled, Pixels, class_scores, class_values, images
from tests.strategies.ranks import run

NAMES = ["intra_fid", "class_accuracy"]


def evaluator_of(extractor=None, num_classes=4, scores=None, **settings):
    scores = {"fid": FrechetInceptionDistance(), **(scores or class_scores())}
    return Evaluator(extractor or Pixels(), scores, num_samples=61, batch_size=16, num_classes=num_classes, **settings)


def test_values_are_those_of_the_scores_alone():
    values, expected = class_values(), {}
    real, fake, asked = Labeled(), images(61, 1), torch.arange(61) % 4
    for name, score in class_scores(num_classes=4).items():
        for given, labels, is_real in ((real.images, real.real_labels(), True), (fake, asked, False)):
            score.update(Features(*Pixels()(given)), real=is_real, labels=labels)
        expected[f"metric/{name}_pixels"] = score.compute().item()
    assert {key: values[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    assert 0 < expected["metric/class_accuracy_pixels"] < 1
    assert list(values) == ["metric/fid_pixels", *expected]


@pytest.mark.parametrize("ends", [(31, 61), (61, 61), (0, 61)])  # the last two: one rank has none
def test_two_ranks_measure_what_one_does(tmp_path, ends):
    for found in run("tests.metrics.cells.class_values", tmp_path, ends=ends):
        assert found == pytest.approx(class_values(), rel=1e-6)


def test_without_classes_nothing_is_asked_for_and_nothing_is_left_out():
    evaluator = evaluator_of(num_classes=0)
    evaluator.add_real(Labeled())
    assert list(evaluator.measure(images(61, 1))) == ["metric/fid_pixels"]
    assert evaluator.left_out == {}
    with pytest.raises(RefusedInput, match=r"intra_fid, class_accuracy need an extractor or a generator that knows"):
        Evaluator(Pixels(), class_scores())
    with pytest.raises(
        RefusedInput, match=r"a score that was asked for cannot.*intra_fid: the generator has no classes"
    ):
        evaluator_of(num_classes=0, required=["intra_fid"]).add_real(Labeled())


class Knows7(Pixels):
    num_logits = num_classes = 7

    def forward(self, images):
        pixels, logits = super().forward(images)
        return pixels, logits.repeat(1, 2)[:, :7]


@pytest.mark.parametrize(
    ("real", "settings", "name", "reason"),
    [
        (images(100, 0), {}, "intra_fid", "the real images have no classes"),
        (Labeled(), {"num_classes": 3}, "intra_fid", "the real images have classes up to 3, the generator has 3"),
        (Labeled(few=4), {}, "intra_fid", "4 images in a class are too few for 4 features: use more than 4 of each"),
        (Labeled(few=1), {}, "intra_fid", "1 image in a class has no covariance"),
        (Labeled(), {"extractor": Knows7()}, "class_accuracy", "the extractor knows 7 classes, the generator has 4"),
    ],
)
def test_what_cannot_be_measured_is_left_out_and_named(real, settings, name, reason):
    evaluator = evaluator_of(**settings)
    evaluator.add_real(real)
    assert reason in evaluator.left_out[name]
    values = evaluator.measure(images(61, 1), torch.arange(61) % evaluator.num_classes)
    assert "metric/fid_pixels" in values
    assert f"metric/{name}_pixels" not in values
    with pytest.raises(RefusedInput, match=reason):
        evaluator_of(**settings, required=[name]).add_real(real)


def test_few_images_in_a_class_are_measured_on_request():
    scores = {"intra_fid": IntraFID(rank_deficient=True)}
    evaluator = evaluator_of(scores=scores)
    evaluator.add_real(Labeled(few=3))
    assert evaluator.measure(images(61, 1), torch.arange(61) % 4)["metric/intra_fid_pixels"] > 0


def test_generated_images_without_their_classes_are_refused():
    evaluator = evaluator_of()
    evaluator.add_real(Labeled())
    with pytest.raises(RefusedInput, match="expected the classes of 16 images, received none: give labels="):
        evaluator.measure(images(61, 1))


def test_other_classes_of_the_same_images_are_other_statistics(tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path))
    data, asked = Labeled(), torch.arange(61) % 4

    def values(labels):
        evaluator = evaluator_of()
        evaluator.add_real(data.images, store=True, labels=labels)
        return evaluator.measure(images(61, 1), asked)

    first, other = values(data.real_labels()), values(data.real_labels().flip(0))
    assert first["metric/fid_pixels"] == other["metric/fid_pixels"]
    assert first["metric/intra_fid_pixels"] != other["metric/intra_fid_pixels"]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    monkeypatch.setattr(Pixels, "forward", lambda self, images: pytest.fail("the statistics are stored"))
    evaluator = evaluator_of()
    evaluator.add_real(data.images, store=True, labels=data.real_labels())


def test_an_extractor_without_the_data_s_classes_measures_inside_classes_alone():
    class Unknowing(Pixels):
        num_classes = 0

    evaluator = evaluator_of(Unknowing())
    evaluator.add_real(Labeled())
    assert list(evaluator.scores) == ["fid", "intra_fid"]
    assert ClassAccuracy().applies(Pixels(), 4)


def test_two_evaluators_of_the_same_scores_do_not_meet():
    scores = {"fid": FrechetInceptionDistance()}
    one, other = (Evaluator(Pixels(), scores, num_samples=61) for _ in range(2))
    one.add_real(images(100, 0))
    expected = one.measure(images(61, 1))
    other.add_real(images(100, 0) // 2)
    assert one.measure(images(61, 1)) == expected
    assert not scores["fid"].real_features_num_samples
