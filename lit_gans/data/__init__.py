"""Data: a source turns files into uint8 images, a datamodule serves them in a resumable order."""
