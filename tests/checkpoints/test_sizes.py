"""Untrusted files: their sizes are checked before memory is taken."""

import json
import tracemalloc
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.sharded import checksums, write_commit
from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed.format import open_packed
from lit_gans.metrics.extractors.weights import read_weights

from . import hostile

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


def test_tensors_larger_than_the_files_of_a_folder_are_refused(good):
    path, file = good("folder")
    sharding = {"generator.0": {"saved_offsets": [2**40]}}
    save_file({"generator.0": torch.zeros(4)}, file, {"DCP_SHARDING_INFO": json.dumps(sharding)})
    write_commit(path, checksums(path))
    with pytest.raises(RefusedInput, match="its tensors are larger than its files"):
        read_checkpoint(path)
