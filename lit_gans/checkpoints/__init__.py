"""Checkpoint formats: single files, sharded folders and exports, on disks and at addresses."""
