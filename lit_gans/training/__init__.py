"""Adversarial training: the training loop, losses, optimizers, and the base classes of generative modules."""
