"""What `_compat` touches is of libraries with an upper bound."""

from importlib.metadata import version

import pytest
from packaging.version import Version

from tests.common.bounds import BOUNDED


@pytest.mark.parametrize("name", ["torch", "lightning", "deepspeed", "hydra-core", "jsonargparse"])
def test_versions_are_bounded_by_what_is_tested(name):
    assert any(bound.operator == "<" for bound in BOUNDED[name])
    assert Version(version(name)).base_version in BOUNDED[name]
