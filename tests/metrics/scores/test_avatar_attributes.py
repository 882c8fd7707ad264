from collections import Counter
from functools import cache

import pytest
import torch

from lit_gans import compose
from lit_gans.common.errors import RefusedInput
from lit_gans.config.build import resolve
from lit_gans.data.faces import ATTRIBUTES
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics import AvatarAttributes, PrecisionRecallDensityCoverage
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.avatars import AvatarsExtractor, attributes_of_features
from lit_gans.metrics.extractors.base import Network
from tests.metrics.cells import Pixels

COMBINED = ("hat", "glasses", "skin")


def drawn(num, seed, **settings):
    return Avatars(num_images=num, image_size=64, faces_seed=seed, **settings).packed.images


@cache
def faces(seed):
    return drawn(400, seed)


def measured(real, fake, **settings):
    score = AvatarAttributes(AvatarsExtractor(), **settings)
    for images, are_real in ((real, True), (fake, False)):
        for batch in images.split(70):
            score.update(batch, real=are_real)
    return score.named(score.compute())


def test_values_are_those_of_the_options_that_were_read():
    real, fake = faces(0)[:150], drawn(100, 1, held_out={"glasses": "none"})
    values = measured(real, fake, combined=COMBINED)
    read = [attributes_of_features(Network(AvatarsExtractor())(images).features) for images in (real, fake)]
    distances, missing = [], 0
    for name, attribute in ATTRIBUTES.items():
        theirs, ours = (Counter(numbers[name].tolist()) for numbers in read)
        options = range(len(attribute.options))
        distances.append(sum(abs(theirs[option] / 150 - ours[option] / 100) for option in options) / 2)
        missing += sum(theirs[option] >= 1.5 and not ours[option] for option in options)
    theirs, ours = ([*zip(*(numbers[name].tolist() for name in COMBINED), strict=True)] for numbers in read)
    assert values == pytest.approx(
        {
            "attribute_distance": sum(distances) / len(distances),
            "options_missing": missing,
            "combinations_known": sum(face in theirs for face in ours) / 100,
            "combinations_by_chance": sum(theirs.count(face) > 1 for face in theirs) / 150,
        }
    )
    assert values["options_missing"] >= 1, "faces without glasses"


def test_a_held_out_combination_is_counted_beside_chance():
    rule = {"glasses": ["round", "kurt"], "hat": "none"}
    fake = faces(1)[:100]
    values = measured(faces(0)[:100], fake, held_out=rule)
    read = attributes_of_features(Network(AvatarsExtractor())(fake).features)
    names = {name: [ATTRIBUTES[name].options[number] for number in read[name]] for name in rule}
    both = [glasses in rule["glasses"] and hat == "none" for glasses, hat in zip(*names.values(), strict=True)]
    assert values["held_out_drawn"] == pytest.approx(sum(both) / 100)
    alone = sum(each in rule["glasses"] for each in names["glasses"]), names["hat"].count("none")
    assert values["held_out_by_chance"] == pytest.approx(alone[0] * alone[1] / 100**2)
    assert 0 < values["held_out_drawn"] < 0.3


def test_classes_and_held_out_combinations_are_those_of_the_data():
    rule = "data.held_out={hat: winter_hat_1, glasses: round}"
    metrics = resolve(compose("data=avatars", "metrics=avatars", "data.label=hat", rule))["metrics"]
    assert metrics["extractor"]["label"] == "hat"
    assert metrics["scores"]["attributes"]["held_out"] == {"hat": "winter_hat_1", "glasses": "round"}
    without = resolve(compose("data=digits", "metrics=avatars"))["metrics"]
    assert without["scores"]["attributes"]["held_out"] is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"held_out": {"hats": "hijab"}}, "held_out: there is no attribute 'hats'"),
        ({"held_out": {}}, "held_out={} has no options"),
        ({"combined": []}, "no attributes"),
    ],
)
def test_wrong_combinations_are_refused(wrong, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        AvatarAttributes(**wrong)


def test_copies_are_known_and_new_faces_as_often_as_by_chance():
    real, new = faces(0), faces(1)
    copied, drawn_anew = (measured(real, fake, combined=COMBINED) for fake in (real[:200], new))
    assert copied["combinations_known"] == 1
    chance = drawn_anew["combinations_by_chance"]
    assert drawn_anew["combinations_known"] == pytest.approx(chance, abs=0.1)
    assert chance < 0.8
    assert copied["attribute_distance"] < drawn_anew["attribute_distance"] < 0.1


def test_an_evaluator_measures_it_with_the_features_that_other_scores_have(monkeypatch):
    real, fake = Avatars(num_images=60, image_size=64, faces_seed=0), faces(1)[:60]
    scores = {"attributes": AvatarAttributes(), "prdc": PrecisionRecallDensityCoverage()}
    evaluator = Evaluator(AvatarsExtractor(), scores, num_samples=60)
    evaluator.add_real(real)
    extracted = []
    monkeypatch.setattr(AvatarsExtractor, "forward", _counting(AvatarsExtractor.forward, extracted))
    values = evaluator.measure(fake)
    assert sum(extracted) == 60
    expected = measured(real.packed.images, fake)
    assert {f"metric/{name}": value for name, value in expected.items()}.items() <= values.items()
    assert evaluator.directions["metric/combinations_known"] is None


def _counting(forward, counts):
    def counted(self, images):
        counts.append(len(images))
        return forward(self, images)

    return counted


def test_another_extractor_and_no_faces_are_refused():
    with pytest.raises(RefusedInput, match="features of AvatarsExtractor"):
        AvatarAttributes(Pixels())
    score = AvatarAttributes(AvatarsExtractor())
    score.update(torch.zeros(1, 3, 64, 64, dtype=torch.uint8), real=True)
    with pytest.raises(RefusedInput, match="no generated"):
        score.compute()
