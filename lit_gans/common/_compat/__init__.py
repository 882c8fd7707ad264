"""Private APIs of other libraries, one module a library, each with the reason for its use.

A release of the library may break them: `pyproject.toml` sets upper bounds for these libraries, and the tests in
`tests/common/test_compat*.py` fail once an entry breaks or is obsolete. Nothing is imported here, so that a user of one
library does not wait for the others.
"""
