"""The configuration files, importable as `lit_gans.conf`."""
