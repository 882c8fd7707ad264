"""One file a GAN. `lit_gans.config.registry` finds them here."""
