"""Checkpoint formats: single files, sharded folders and exports."""
