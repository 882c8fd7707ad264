"""Report of a run as a self-contained HTML page."""
