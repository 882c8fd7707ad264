"""Measurements of generated images: feature extractors and what is computed from their features."""
