"""Feature extractors: images to features and class logits."""
