"""GAN models, one per file. `lit_gans.config.registry` discovers all models in this package."""
