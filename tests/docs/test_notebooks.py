"""Every notebook runs from top to bottom in its folder, with few iterations, samples and tables."""

import pytest

from tests.docs.blocks import ROOT

FEW = {"STEPS": "6", "SAMPLES": "300", "PARTS": "scaling projection"}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    for name, value in FEW.items():
        monkeypatch.setenv(f"LIT_GANS_NOTEBOOK_{name}", value)
    NotebookClient(nbformat.read(path, as_version=4), resources={"metadata": {"path": str(path.parent)}}).execute()
