"""What one does with the latents of a trained generator: truncation, interpolation, directions, projection."""
