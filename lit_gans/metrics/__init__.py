"""Metrics of generated images: feature extractors, and scores of features."""
