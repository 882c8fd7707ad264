"""Scores that compare the statistics of generated and real images, one file each."""
