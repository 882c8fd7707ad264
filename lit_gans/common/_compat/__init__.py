"""Private APIs of other libraries, one module a library. Nothing else in the package touches a private API.

Each entry states what is private and the upstream issue, or that none was found. Each module states the version that it
was checked with; `pyproject.toml` has the upper bounds, since any release may break what is private. The tests in
`tests/common/test_compat*.py` fail once an entry breaks or becomes needless, and for entries without a test.

This file imports nothing, so that users of one library do not import the others.
"""
