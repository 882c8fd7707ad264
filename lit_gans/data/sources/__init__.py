"""Sources of images: one file a source."""
