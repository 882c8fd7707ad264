"""Scores: numbers that two summaries of images give, one file each."""
