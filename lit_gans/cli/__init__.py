"""The commands of `lit-gans`: one file a command."""
