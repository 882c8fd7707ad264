"""Data: sources convert files to uint8 images, datamodules serve them in a resumable order."""
