"""Commands of `lit-gans`, with one file per command in the folder `commands`, and their shared code."""
