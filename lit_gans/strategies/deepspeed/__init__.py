"""Strategy that creates one DeepSpeed engine for each network."""
