"""`python -m lit_gans` is `lit-gans`."""

from lit_gans.cli.main import main

main()
