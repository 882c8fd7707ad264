"""Marks the tests of this folder as those of `pytest -m docs`."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker("docs")
