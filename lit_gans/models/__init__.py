"""One file a GAN. `lit_gans.registry` finds them here."""
