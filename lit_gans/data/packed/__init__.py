"""Packed images: all images, decoded and resized once, in a single memory-mapped file."""
