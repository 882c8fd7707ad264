"""Untrusted files: their sizes are checked before memory is taken."""

import json
import os
import tracemalloc
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.sharded import checksums, write_commit
from lit_gans.common import memory
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import open_picture
from lit_gans.data.packed.format import open_packed
from lit_gans.data.sources.streaming import _refuse_code
from lit_gans.metrics.extractors.weights import read_weights

from . import hostile
from .hostile_files import READERS

SPARSE = 2**42  # bytes, more than the memory of a machine; a file without content takes no place on the disk
LITTLE = 2**22  # bytes, a few blocks of a checksum


@contextmanager
def little_memory():
    """Fails if Python takes more than a little memory inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [hostile.larger_than_its_storage, hostile.bomb, hostile.huge_bytearray])
@pytest.mark.parametrize("read", [read_checkpoint, lambda path: read_weights(path, None)])
def test_no_more_memory_is_taken_than_the_file_has_bytes(tmp_path, make, read):
    path = tmp_path / "large.ckpt"
    make(path)
    with pytest.raises(RefusedInput, match="cannot be read as"):
        read(path)


@pytest.mark.parametrize(
    "claimed",
    [
        {"shape": (2**40, 3, 8, 8)},
        {"shape": (2**62, 2**62, 2**62, 2**62)},
        {"shape": (1, -3, -8, 8)},
        {"shape": (1, 3, 64)},
        {"shape": (2, 3, 8, 4)},
        {"shape": 9},
        {"shape": (True, 3, 8, 8)},
        {"descr": "|O"},
        {"descr": "|i1"},
        {"fortran_order": True},
    ],
)
def test_packed_images_whose_header_claims_something_else_are_refused(good, claimed):
    path, _ = good("packed images")
    hostile.packed_with(path, **claimed)
    with little_memory(), pytest.raises(RefusedInput, match="it is packed again"):
        open_packed(path)


@pytest.mark.parametrize("name", READERS)
def test_the_size_of_a_sparse_file_is_checked_before_it_is_read(good, name):
    path, file = good(name)
    os.truncate(file, SPARSE)
    with little_memory(), pytest.raises(RefusedInput):
        READERS[name].read(path)


@pytest.mark.parametrize("read", [_refuse_code, lambda path: open_picture(path, str(path), [])])
def test_what_is_read_as_a_whole_is_bounded(tmp_path, read):
    path = tmp_path / "large.png"
    path.touch()
    os.truncate(path, SPARSE)
    with little_memory(), pytest.raises(RefusedInput):
        read(path)


@pytest.mark.parametrize("name", ["checkpoint", "rest of a folder", "weights", "exported weights"])
def test_a_file_that_is_larger_than_the_memory_is_refused(good, monkeypatch, name):
    path, _ = good(name)
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**8)
    with pytest.raises(RefusedInput, match=r"the [\d,]+ bytes of .* need 0 GiB of memory, more than the 0 GiB"):
        READERS[name].read(path)


def test_tensors_of_a_folder_that_no_machine_can_hold_are_refused(good, monkeypatch):
    path, _ = good("folder")
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**18)
    with pytest.raises(RefusedInput, match=r"the tensors in .* need 0 GiB of memory, more than the 0 GiB"):
        read_checkpoint(path)


def test_tensors_larger_than_the_files_of_a_folder_are_refused(good):
    path, file = good("folder")
    sharding = {"generator.0": {"saved_offsets": [2**40]}}
    save_file({"generator.0": torch.zeros(4)}, file, {"DCP_SHARDING_INFO": json.dumps(sharding)})
    write_commit(path, checksums(path))
    with pytest.raises(RefusedInput, match="its tensors are larger than its files"):
        read_checkpoint(path)
