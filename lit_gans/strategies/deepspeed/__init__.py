"""One DeepSpeed engine for each network."""
