"""Commands of `lit-gans`, one file each in the folder `commands`, and what they share."""
