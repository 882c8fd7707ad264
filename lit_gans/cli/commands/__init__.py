"""Commands of `lit-gans`. Every file defines a command of the same name."""
