"""Runs the notebooks of this folder with few iterations, samples and tables, as tests of `pytest -m docs`."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("LIT_GANS_NOTEBOOK_STEPS", "6")
os.environ.setdefault("LIT_GANS_NOTEBOOK_SAMPLES", "300")
os.environ.setdefault("LIT_GANS_NOTEBOOK_PARTS", "scaling projection")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker("docs")
