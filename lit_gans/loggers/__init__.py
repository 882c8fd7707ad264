"""Loggers beside Lightning's own."""

from lit_gans.loggers.csv_metrics import CSVMetrics

__all__ = ["CSVMetrics"]
