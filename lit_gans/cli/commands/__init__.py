"""Commands of `lit-gans`. Every file is a command with the name of the file."""
