"""Runs notebooks with their own numbers, and stores what they print and draw: `python -m docs.notebooks quickstart`."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

_KEPT = {"image/png", "image/svg+xml", "text/markdown", "text/plain"}
FOLDER = Path(__file__).parents[1] / "notebooks"


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Returns a notebook with pictures, values and printed text, without warnings, progress and counts."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.metadata = None, {}
            cell.outputs = [output for output in cell.outputs if _is_result(output)]
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = None
                for kind in {*output.get("data", {})} - _KEPT:
                    del output.data[kind]
    return notebook


def _is_result(output: NotebookNode) -> bool:
    if output.output_type == "stream":
        return bool(output.name == "stdout")
    return output.output_type == "execute_result" or bool({*output.data} & (_KEPT - {"text/plain"}))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(FOLDER)}}).execute()
        nbformat.write(cleaned(notebook), path)
