"""`python -m lit_gans` is `lit-gans`."""

from lit_gans.cli import main

main()
