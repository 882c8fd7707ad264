"""Packed files of the first edition are found and opened; what one process opened, no other process uses."""

import multiprocessing
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lit_gans.data.packed.format import PerProcess
from lit_gans.data.sources.folder import Folder


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_each_process_opens_its_own_once():
    calls = []
    opened = PerProcess(lambda: (calls.append(1), os.getpid(), len(calls)))
    assert opened() == opened() == (None, os.getpid(), 1)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=lambda: queue.put([opened(), opened()]))
    child.start()
    assert queue.get() == [(None, child.pid, 2)] * 2
    child.join()
    assert opened() == (None, os.getpid(), 1)


def test_it_is_sent_closed():
    opened = PerProcess(os.getpid)
    opened()
    assert pickle.loads(pickle.dumps(opened))._opened is None


FIRST_EDITION = Path(__file__).parent / "first_edition"


def test_a_packed_file_of_the_first_edition_is_found_by_its_name_and_opened(tmp_path, monkeypatch):
    Image.new("RGB", (8, 8)).save(tmp_path / "any.png")
    identity = {"root": "/photos", "files": "41ee0f52c018551c76b207313c541ce9"}
    monkeypatch.setattr(Folder, "identity", lambda folder: identity)
    data = Folder(str(tmp_path), image_size=8, cache=str(FIRST_EDITION), on_error="skip")
    assert data.packed_path.exists(), "its name is a function of the identity, the same as in the first edition"
    packed = data.packed
    packed.verify()
    expected = np.stack([np.arange(first, first + 192, dtype=np.uint8).reshape(8, 8, 3) for first in (0, 2, 1)])
    assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), expected)
    assert (packed.labels.tolist(), packed.index.tolist()) == ([0, 0, 1], [0, 1, 2])
    assert packed.about["identity"] == identity
    assert len(packed.about["skipped"]) == 1


def test_the_identity_of_a_folder_is_that_of_the_first_edition(tmp_path):
    for name in ("dogs/é.png", "cats/1.png"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(b"12345")
        os.utime(path, ns=(7, 1_700_000_000_123_456_789))
    assert Folder(str(tmp_path)).identity()["files"] == "da7be466f8fba456387e13bcd9ab7145"
