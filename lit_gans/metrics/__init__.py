"""Metrics for generated images: feature extractors, and torchmetrics that compute scores from features."""

from lit_gans.metrics.scores.avatar_attributes import AvatarAttributes
from lit_gans.metrics.scores.classes import ClassAccuracy, ClassCoverage, IntraFID
from lit_gans.metrics.scores.cmmd import CMMD
from lit_gans.metrics.scores.fid import FrechetInceptionDistance
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.kid import KernelInceptionDistance
from lit_gans.metrics.scores.mifid import MemorizationInformedFrechetInceptionDistance
from lit_gans.metrics.scores.modes import ModeCoverage
from lit_gans.metrics.scores.paired_l1 import PairedL1
from lit_gans.metrics.scores.prdc import PrecisionRecallDensityCoverage

__all__ = [
    "CMMD",
    "AvatarAttributes",
    "ClassAccuracy",
    "ClassCoverage",
    "FrechetInceptionDistance",
    "InceptionScore",
    "IntraFID",
    "KernelInceptionDistance",
    "MemorizationInformedFrechetInceptionDistance",
    "ModeCoverage",
    "PairedL1",
    "PrecisionRecallDensityCoverage",
]
