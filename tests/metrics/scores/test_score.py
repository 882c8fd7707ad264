import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.kid import KID
from lit_gans.metrics.scores.prdc import PRDC
from lit_gans.metrics.scores.score import measurable

SCORES = (FID(), InceptionScore(), KID(), PRDC())


@pytest.mark.parametrize(
    ("num_real", "num_fake", "num_logits", "left_out"),
    [
        (None, 5000, None, []),
        (64, 5000, None, ["KID"]),
        (64, 19, 10, ["InceptionScore", "KID"]),
        (None, 64, 0, ["InceptionScore", "KID"]),
        (1, 5000, 10, ["FID", "KID", "PRDC"]),
    ],
)
def test_what_so_many_images_allow_is_kept_and_the_others_have_a_reason(num_real, num_fake, num_logits, left_out):
    kept, reasons = measurable(SCORES, num_real, num_fake, num_logits)
    assert list(reasons) == left_out
    assert [type(score).__name__ for score in SCORES if score in kept] == [
        name for name in ("FID", "InceptionScore", "KID", "PRDC") if name not in left_out
    ]
    assert all(reason.endswith(".") for reason in reasons.values())


def test_no_score_at_all_is_refused_with_every_reason():
    with pytest.raises(RefusedInput, match=r"no score can be measured: FID: 1 image .* 2; .*; KID: .*; PRDC: 1 images"):
        measurable(SCORES, 1, 1)
