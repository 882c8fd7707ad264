"""Operations on the latents of a trained generator: truncation, interpolation, directions and projection."""
