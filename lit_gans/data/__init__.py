"""Data sources, which convert files to uint8 images, and datamodules, which serve the images in a resumable order."""
