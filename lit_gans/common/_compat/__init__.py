"""Private and undocumented APIs of other libraries, one module for each library.

Nothing else in the package touches them: `tests/test_architecture.py` fails for every other use that it can find.

Each entry states what is private and the upstream issue, or that none was found. Each module states the version that it
was checked with. A newer version may break an entry: `pyproject.toml` has an upper bound only where a version is known
to, and `.ci/versions` tests the lowest and the highest versions. The tests in `tests/common/test_compat*.py` fail once
an entry breaks or becomes needless, and for entries without a test.

This file imports nothing, so that users of one library do not import the others.
"""
