"""Records that a run can do without: damage is named and costs the record at most; datasets are refused."""

import logging
import struct

import numpy as np
import pytest
import torch

from lit_gans.callbacks import evaluation
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.torchvision_sets import MNIST
from lit_gans.metrics import cache

from . import hostile


def statistics(path):
    cache.write(path, {"fid/total": torch.ones(3), "kid/features": torch.zeros(4, 2)})


def rows(path):
    logger = CSVMetrics(str(path.parent))
    for step in range(1, 9):
        logger.log_metrics({"loss/generator": step / 3, "loss/discriminator": 0.5}, step)
    logger.save()


def continue_rows(path):
    logger = CSVMetrics(str(path.parent))
    logger.log_metrics({"loss/generator": 1.0}, 7)
    logger.save()


def digits(path):
    path.parent.mkdir(parents=True)
    header = struct.pack(">IIII", 2051, 4, 28, 28)
    path.write_bytes(header + np.arange(4 * 784).astype(np.uint8).tobytes())
    for part in ("train", "t10k"):
        (path.parent / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II4B", 2049, 4, 0, 1, 2, 3))
    (path.parent / "t10k-images-idx3-ubyte").write_bytes(path.read_bytes())


def read_digits(path):
    source = MNIST(root=str(path.parents[2]), cache=str(path.parent / "cache")).source()
    for index in range(len(source)):
        source.picture(index, [])
        source.label(index)


RECORDS = {  # name of the file, how it is made, and what reads it
    "protocol": ("protocol.json", lambda path: path.write_text('{"fid": {"num": 3}}'), evaluation._read),
    "statistics": ("real.safetensors", statistics, cache.read),
    "rows": ("metrics.csv", rows, continue_rows),
    "dataset": ("MNIST/raw/train-images-idx3-ubyte", digits, read_digits),
}


@pytest.fixture
def record(tmp_path, caplog):
    """Makes a good record; returns its path and what reads it."""
    caplog.set_level(logging.CRITICAL)

    def make(name):
        file, write, read = RECORDS[name]
        path = tmp_path / file
        write(path)
        read(path)
        return path, read

    return make


def fuzz(record, name, num):
    path, read = record(name)
    content, draw, said = path.read_bytes(), hostile.draws(name), []
    for _ in range(num):
        path.write_bytes(hostile.mutated(content, draw))
        try:
            read(path)
        except RefusedInput as error:
            said.append(str(error))
    assert bool(said) == (name == "dataset")
    assert all(sentence and "\n" not in sentence for sentence in said)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECORDS)
def test_forty_mutations_cost_the_record_at_most(record, name):
    fuzz(record, name, 40)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECORDS)
def test_a_thousand_mutations_cost_the_record_at_most(record, name):
    fuzz(record, name, 1000)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECORDS)
def test_no_record_runs_code(record, tmp_path, name):
    path, read = record(name)
    path.write_bytes(hostile.code_in_pickle(tmp_path / "executed"))
    try:
        read(path)
    except RefusedInput:
        assert name == "dataset"
    assert not (tmp_path / "executed").exists()
