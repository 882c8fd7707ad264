"""Choice of scores: those that an extractor and a number of images allow."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.base import NO_LOGITS, FeatureScore
from lit_gans.metrics.scores.class_accuracy import ClassAccuracy
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FrechetInceptionDistance
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.intra_fid import IntraFID
from lit_gans.metrics.scores.labeled import Classes, LabeledScore

logger = logging.getLogger(__name__)


def chosen(extractor: nn.Module, scores: Mapping[str, Any] | None) -> dict[str, FeatureScore]:
    """Returns the scores that apply to an extractor, by name.

    Args:
        extractor: feature extractor.
        scores: scores by name, None for those that are disabled; by default FID, Inception Score, class coverage, FID
            inside each class and the share of samples of the class that was asked for.

    Raises:
        RefusedInput: `extractor` is another module, a value is no score, no score is left, or two
            scores have the same key in logs.
    """
    if not isinstance(extractor, Extractor) or type(extractor) is Extractor:
        raise RefusedInput(
            f"{type(extractor).__name__} is no extractor: ModuleExtractor(net) of lit_gans.metrics.extractors.base"
            " wraps any module that maps images in [0, 1] to features."
        )
    if scores is None:
        scores = {
            "fid": FrechetInceptionDistance(),
            "inception_score": InceptionScore(),
            "class_coverage": ClassCoverage(),
            "intra_fid": IntraFID(),
            "class_accuracy": ClassAccuracy(),
        }
    for name, score in scores.items():
        if score is not None and not isinstance(score, FeatureScore):
            raise RefusedInput(
                f"metrics.scores.{name}={score!r} is not a score: choose one with score@metrics.scores.{name}=NAME, or"
                " null for none."
            )
    applicable = {name: score for name, score in scores.items() if score is not None and score.applies(extractor)}
    if not applicable:
        raise RefusedInput("no score is left to measure: keep one, for example the fid, or use metrics=none.")
    owners: dict[str, str] = {}
    for name, score in applicable.items():
        for key in score.keys(extractor).values():
            if owners.setdefault(key, name) != name:
                raise RefusedInput(f"the scores {owners[key]} and {name} both measure {key}: keep one of them.")
    return applicable


def without_labeled(scores: Mapping[str, FeatureScore], required: Collection[str] = ()) -> dict[str, FeatureScore]:
    """Returns the scores of a generator without classes: those that need none, and required ones.

    Raises:
        RefusedInput: no score is left.
    """
    kept = {name: score for name, score in scores.items() if name in required or not isinstance(score, LabeledScore)}
    if not kept:
        raise RefusedInput(f"the generator has no classes, which {', '.join(scores)} need: keep another score.")
    return kept


def directions(extractor: Extractor, scores: Mapping[str, FeatureScore]) -> dict[str, str | None]:
    """Returns whether the best value of each key is the `min` or the `max`, or None for neither."""
    return {key: score.directions[name] for score in scores.values() for name, key in score.keys(extractor).items()}


def measurable(
    scores: Mapping[str, FeatureScore],
    num_real: int | None,
    num_fake: int,
    num_logits: int | None = None,
    required: Collection[str] = (),
    classes: Classes | None = None,
) -> tuple[dict[str, FeatureScore], dict[str, str]]:
    """Returns the scores that the images allow, and the reason why each other score is left out, by name.

    Args:
        scores: scores to select from.
        num_real, num_fake: see `FeatureScore.too_few`.
        num_logits: number of class logits of the extractor; None if it is not known yet.
        required: names of scores that must not be left out.
        classes: classes of the images; None if they are not known yet.

    Raises:
        RefusedInput: no score is left, or not all required ones; the message gives all reasons.
    """
    left_out = {}
    for name, score in scores.items():
        reason = score.too_few(num_real, num_fake)
        if score.needs_logits and num_logits == 0:
            reason = NO_LOGITS
        if reason is None and classes is not None and isinstance(score, LabeledScore):
            reason = score.unmeasurable(classes)
        if reason is not None:
            left_out[name] = reason
    nothing = len(left_out) == len(scores)
    refused = [f"{name}: {reason.rstrip('.')}" for name, reason in left_out.items() if nothing or name in required]
    if refused:
        what = "no score can be measured" if nothing else "a score that was asked for cannot be measured"
        raise RefusedInput(f"{what}: {'; '.join(refused)}.")
    return {name: score for name, score in scores.items() if name not in left_out}, left_out


def warn_of_few(num: int, num_features: int) -> bool:
    """Logs a warning, and returns True, if there are no more images than features."""
    few = num <= num_features
    if few:
        logger.warning(
            "%d images are no more than the %d features: covariances do not have full rank, and the FID is far too"
            " large to compare with the FID of more images.",
            num,
            num_features,
        )
    return few
