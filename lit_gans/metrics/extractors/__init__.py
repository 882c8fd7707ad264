"""Feature extractors, which map images to features and class logits."""
