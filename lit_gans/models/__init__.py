"""GANs, one file each. `lit_gans.config.registry` discovers them here."""
