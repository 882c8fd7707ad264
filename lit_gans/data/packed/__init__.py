"""Packed images: all images of a source, decoded and resized once, and stored in a single memory-mapped file."""
