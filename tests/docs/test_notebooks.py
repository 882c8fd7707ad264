"""Every notebook runs from top to bottom in its folder, with few iterations, samples and tables."""

import json

import pytest

from docs import generate
from tests.docs.blocks import ROOT

FEW = {"STEPS": "6", "SAMPLES": "300"}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    for name, value in FEW.items():
        monkeypatch.setenv(f"LIT_GANS_NOTEBOOK_{name}", value)
    NotebookClient(nbformat.read(path, as_version=4), resources={"metadata": {"path": str(path.parent)}}).execute()


@pytest.mark.parametrize("name", generate.NOTEBOOKS)
def test_what_the_site_shows_of_a_notebook_is_stored_without_warnings(name):
    cells = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs, f"run: python -m docs.notebooks {name}"
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    kinds = {"image/png", "image/svg+xml", "text/markdown", "text/plain"}
    assert all({*output.get("data", ())} <= kinds for output in outputs)
