"""Wrappers of private and undocumented APIs of other libraries, with one module per library.

No other module of the package uses such APIs. `tests/test_architecture.py` searches the other modules, and fails for
every use that it finds.

The docstring of a wrapper names the private API and the upstream issue, or states that no issue was found. The
docstring of a module states the library version that it was checked with. A newer version might break a wrapper.
`pyproject.toml` contains an upper bound only if a version is known to break a wrapper, and `.ci/versions` tests the
lowest and the highest versions. The tests in `tests/common/test_compat*.py` fail if a wrapper breaks, is no longer
needed, or has no test.

This file imports nothing, so that the wrappers of one library can be used without the other libraries.
"""
