"""Good files of every reader, to be damaged."""

import pytest

from .hostile_files import READERS, RECORDS


@pytest.fixture
def good(tmp_path):
    """Makes a good file for a reader; returns the path to read and the file to damage."""

    def make(name):
        path = tmp_path / f"{name.replace(' ', '_')}.ckpt"
        reader = (READERS | RECORDS)[name]
        reader.write(path)
        reader.read(path)
        return path, next(path.glob(reader.inside)) if reader.inside else path

    return make
