"""Scores that compare the statistics of generated and real images. Each file defines one kind of score."""
