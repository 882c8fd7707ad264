"""Checkpoint formats: single files, sharded folders and exported folders."""
