"""Tests that need network namespaces, which a machine may not have or permit."""

import os
import shutil
from pathlib import Path

import pytest

NEEDS_NAMESPACES = pytest.mark.skipif(
    not shutil.which("tc") or not Path("/dev/net/tun").exists() or os.geteuid() != 0,
    reason="network namespaces with TUN devices need root",
)
