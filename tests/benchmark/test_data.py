"""The data benchmark: what it reports, and that it counts all memory. No timing is asserted."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lit_gans.benchmark.data import data
from lit_gans.benchmark.packing_memory import growth_while_packing, held_bytes
from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed.format import Source

needs_proc = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")


def test_smoke_measures_everything_and_writes_it(tmp_path, capsys):
    result = data(preset="smoke", rounds=1, steps=2, output=str(tmp_path / "new" / "data.json"), device="cpu")
    assert json.loads((tmp_path / "new" / "data.json").read_text()) == json.loads(json.dumps(result))
    assert result["serving"]["images_per_second"].keys() == {"lit_gans", "ImageFolder"}
    assert result["packing"]["images_per_second"].keys() == {"lit_gans", "one process"}
    for kind in ("serving", "packing"):
        speeds, ratio = result[kind]["images_per_second"], result[kind]["ratio"]
        ours, theirs = (speed["median"] for speed in speeds.values())
        assert ratio["median"] == pytest.approx(ours / theirs), "of one round"
    waiting = result["waiting"]
    fetch, step = waiting["fetch_seconds"]["median"], waiting["step_seconds"]["median"]
    assert waiting["share"] == pytest.approx(fetch / (fetch + step)), "the median of two is their mean"
    assert waiting["placement"] == "memory"
    assert result["memory_of_packing"].keys() == {32}
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1]) == json.loads(json.dumps(result))
    assert "of its time for data" in printed
    assert "packing, one process" in printed


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="rounds=0 must be at least 1"):
        data("smoke", rounds=0)
    with pytest.raises(RefusedInput, match="image_size=0 must be at least 1"):
        data(image_size=0)


class Growing(Source):
    """Images, one of which leaves a block of memory behind."""

    def __init__(self, index, num_bytes):
        self.index, self.num_bytes, self.block = index, num_bytes, None

    def __len__(self):
        return 200  # several chunks

    def name(self, index):
        return str(index)

    def picture(self, index, notes):
        if index == self.index:
            self.block = np.ones(self.num_bytes, np.uint8)
        return Image.new("RGB", (8, 8))


@needs_proc
@pytest.mark.parametrize("num_workers", [0, 2])
def test_memory_of_packing_is_that_of_all_its_processes(tmp_path, num_workers):
    size = 2**28  # far more than what two runs of the same packing differ by (10 MB seen)
    little = growth_while_packing(Growing(None, 0), tmp_path / "little.packed", 8, num_workers)
    much = growth_while_packing(Growing(10, size), tmp_path / "much.packed", 8, num_workers)
    assert much - little > 0.8 * size


@needs_proc
def test_memory_is_that_of_a_process_and_all_that_it_started():
    size = 2**26
    before = held_bytes(os.getpid())
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # never those that this process had freed
    block = np.frombuffer(pages, np.uint8)
    block[:] = 1
    with_block = held_bytes(os.getpid())
    assert 0.9 * size < with_block - before < 1.5 * size
    waits = f"block = b'x' * {size}; print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", waits], **pipes) as process:
        process.stdout.readline()
        with_child = held_bytes(os.getpid())
        process.communicate("\n")
    assert 0.9 * size < with_child - with_block < 1.5 * size
    assert len(block) == size
    assert held_bytes(process.pid) == 0
