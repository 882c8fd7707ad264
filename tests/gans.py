"""Names of the GANs of this package, without those that a test or `LIT_GANS_IMPORT` registers."""

from lit_gans.config.registry import gans

GANS = sorted(name for name, cls in gans().items() if cls.__module__.startswith("lit_gans."))
