"""Checkpoint formats: single files and sharded folders."""
