"""Benchmarks: what the training step costs, beside what others and the machine itself do."""
