"""Commands of `lit-gans`, one file each."""
