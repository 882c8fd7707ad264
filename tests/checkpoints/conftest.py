"""Good files of every reader, to be damaged."""

import pytest

from .hostile_files import READERS


@pytest.fixture
def good(tmp_path):
    """Makes a good file for a reader; returns the path to read and the file to damage."""

    def make(name):
        path = tmp_path / f"{name.replace(' ', '_')}.ckpt"
        write, inside, read = READERS[name]
        write(path)
        read(path)
        return path, next(path.glob(inside)) if inside else path

    return make
