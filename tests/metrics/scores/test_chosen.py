import math

import pytest
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import (
    ClassCoverage,
    FrechetInceptionDistance,
    InceptionScore,
    KernelInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.evaluator import chosen, measurable
from lit_gans.metrics.extractors.base import Widths
from tests.metrics.cells import Pixels

SCORES = {
    "fid": FrechetInceptionDistance(),
    "inception_score": InceptionScore(),
    "kid": KernelInceptionDistance(),
    "prdc": PrecisionRecallDensityCoverage(),
}


@pytest.mark.parametrize(
    ("num_real", "num_fake", "num_logits", "left_out"),
    [
        (math.inf, 5000, None, []),
        (64, 5000, None, ["kid"]),
        (64, 19, 10, ["inception_score", "kid"]),
        (math.inf, 64, 0, ["inception_score", "kid"]),
        (1, 5000, 10, ["fid", "kid", "prdc"]),
    ],
)
def test_what_so_many_images_allow_is_kept_and_the_others_have_a_reason(num_real, num_fake, num_logits, left_out):
    widths = None if num_logits is None else Widths(4, num_logits)
    kept, reasons = measurable(SCORES, num_real, num_fake, widths)
    assert list(reasons) == left_out
    assert list(kept) == [name for name in SCORES if name not in left_out]
    assert all(reason.endswith(".") for reason in reasons.values())


def test_a_score_that_was_asked_for_is_not_left_out():
    with pytest.raises(RefusedInput, match=r"asked for cannot be measured: kid: 64 images are too few"):
        measurable(SCORES, 64, 5000, required=("kid", "fid"))
    assert list(measurable(SCORES, 64, 5000, required=("fid",))[1]) == ["kid"]


def test_scores_of_one_key_are_refused_and_those_without_meaning_are_dropped():
    with pytest.raises(RefusedInput, match="the scores kid and small both measure metric/kid_pixels"):
        chosen(Pixels(), {"kid": KernelInceptionDistance(), "small": KernelInceptionDistance(subset_size=10)})

    class Unnamed(Pixels):
        num_classes = 0

    assert list(chosen(Unnamed(), {"fid": SCORES["fid"], "kid": None, "classes": ClassCoverage()})) == ["fid"]
    with pytest.raises(RefusedInput, match="no score is left"):
        chosen(Unnamed(), {"fid": None, "classes": ClassCoverage()})
    assert list(chosen(Pixels(), None)) == ["fid", "inception_score", "class_coverage", "intra_fid", "class_accuracy"]


def test_a_module_that_is_no_extractor_is_refused():
    with pytest.raises(RefusedInput, match=r"Linear is no extractor: ModuleExtractor\(net\)"):
        chosen(nn.Linear(2, 2), None)


def test_a_value_that_is_no_score_is_refused():
    with pytest.raises(RefusedInput, match=r"metrics\.scores\.kid='kid' is not a score: choose one with score@metrics"):
        chosen(Pixels(), {"kid": "kid"})


def test_no_score_at_all_is_refused_with_every_reason():
    with pytest.raises(RefusedInput, match=r"no score can be measured: fid: 1 image .* 2; .*; kid: .*; prdc: 1 images"):
        measurable(SCORES, 1, 1)
