"""Adversarial training: the loop, what it optimizes, and what every generative module shares."""
