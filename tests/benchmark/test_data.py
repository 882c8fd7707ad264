import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lit_gans.benchmark.data import _held, data


def test_smoke_measures_everything_and_writes_it(tmp_path, capsys):
    result = data(preset="smoke", rounds=1, steps=2, output=str(tmp_path / "data.json"), device="cpu")
    assert json.loads((tmp_path / "data.json").read_text()) == json.loads(json.dumps(result))
    assert result["serving"]["ratio"]["median"] > 0
    assert result["packing"]["images_per_second"].keys() == {"lit_gans", "one process"}
    assert 0 < result["waiting"]["share"] < 1
    assert result["waiting"]["placement"] == "memory"
    few, many = result["memory_of_packing"].values()
    assert 0 <= few < 2**27  # so few pictures may be packed between two looks
    assert 0 <= many < 2**27
    assert "waits" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_memory_is_that_of_a_process_and_all_that_it_started():
    size = 2**26
    before = _held(os.getpid())
    block = np.ones(size, np.uint8)
    with_block = _held(os.getpid())
    assert 0.9 * size < with_block - before < 1.5 * size
    waits = f"block = b'x' * {size}; print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", waits], **pipes) as process:
        process.stdout.readline()
        with_child = _held(os.getpid())
        process.communicate("\n")
    assert 0.9 * size < with_child - with_block < 1.5 * size
    assert len(block) == size
    assert _held(process.pid) == 0
