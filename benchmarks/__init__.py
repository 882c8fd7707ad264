"""Benchmarks of training, evaluation, data and start-up, compared with other libraries and the hardware."""
