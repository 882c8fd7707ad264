"""Metrics of generated images: feature extractors, and scores of features as torchmetrics."""

from lit_gans.metrics.scores.fid import FrechetInceptionDistance

__all__ = ["FrechetInceptionDistance"]
