"""A protocol tells apart what does not compare, and survives a JSON file."""

import json

import pytest
import torch

from lit_gans.metrics import AvatarAttributes, FrechetInceptionDistance, InceptionScore
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.avatars import AvatarsExtractor
from lit_gans.metrics.protocol import differences, stamp

FACES = torch.randint(0, 256, (8, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()


def protocol(label, **scores):
    evaluator = Evaluator(AvatarsExtractor(label), scores, num_samples=20)
    evaluator.choose(FACES)
    return stamp(evaluator, data="noise", weights="ema")


def test_scores_of_logits_compare_only_if_the_extractor_has_the_same_label():
    hair, glasses = (protocol(label, score=InceptionScore()) for label in ("hair", "glasses"))
    conflicts, _ = differences(hair, glasses)
    assert len(conflicts) == 1
    assert conflicts[0].startswith("scores: {'InceptionScore': {'splits': 10, 'extractor_label': 'hair'}} and")
    assert differences(hair, protocol("hair", score=InceptionScore())) == ([], [])


@pytest.mark.parametrize("label", [None, "hair"])
def test_scores_of_features_compare_whatever_the_label_of_the_extractor(label):
    found, other = (protocol(each, score=FrechetInceptionDistance()) for each in (label, "glasses"))
    assert differences(found, other) == ([], [])


def test_a_protocol_equals_its_json_copy():
    found = protocol(None, score=AvatarAttributes())
    assert json.loads(json.dumps(found)) == found


def test_what_only_some_measurements_have_is_compared_and_what_a_measurement_found_is_not():
    one = {"num_fake": 9, "epsilon": 0.1, "real_halves": 1.0, "seed": 1}
    assert differences(one, one | {"real_halves": 2.0}) == ([], [])
    assert differences(one, one | {"epsilon": 0.2, "seed": 2}) == (["epsilon: 0.1 and 0.2"], ["seed: 1 and 2"])
