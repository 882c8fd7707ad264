"""Utilities for all packages of lit_gans, none of which they import."""
