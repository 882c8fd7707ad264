"""Plain networks: they know nothing of Lightning, devices or ranks."""
