"""Data sources, with one module per source."""
