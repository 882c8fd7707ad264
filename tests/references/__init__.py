"""Networks, losses, steps and metrics beside their authors' code, in float64; skipped without checkouts of it.

`LIT_GANS_REFERENCES=FOLDER pytest -n0 tests/references` compares with checkouts in FOLDER/owner+name, and prints the
largest relative difference of each comparison. The code is imported from there; none of it is part of this package.
"""
