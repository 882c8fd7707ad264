"""Measurements of generated images: feature extractors and scores of their features."""
