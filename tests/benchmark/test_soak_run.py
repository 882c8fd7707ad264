"""What one training of the soak counts as a loss."""

import random
from unittest.mock import Mock

import pytest

from lit_gans.benchmark import soak_run
from lit_gans.benchmark.soak_run import SoakRun
from lit_gans.benchmark.soak_training import Lost, Setting, Training


def test_a_packed_file_that_is_still_damaged_counts_once_it_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr(soak_run, "resumes_at", lambda _: 4)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/folder.packed").write_bytes(b"truncated")
    run = SoakRun(Setting("dcgan"), tmp_path, tmp_path, [], random.Random(0), begins_at=4)
    run._to_name, training = ["folder.packed"], Mock(spec=Training, iterations=[], output="")
    run.interrupted(training)
    training.output = "folder.packed is damaged"
    with pytest.raises(Lost, match=r"folder\.packed is not complete"):
        run.interrupted(training)


def test_the_checkpoint_of_a_stop_is_one_of_the_last(tmp_path, monkeypatch):
    def kept(*steps):
        return {"checkpoints": ["last.ckpt", *(f"step-{step:08d}.ckpt" for step in steps)], "training.gif": b""}

    run = SoakRun(Setting("dcgan"), tmp_path, tmp_path, [], random.Random(0), begins_at=4)
    monkeypatch.setattr(soak_run, "rows", lambda _: {})
    reference = {"results": kept(12, 14, 16), "rows": {}}
    for stops, right in (([], (12, 14, 16)), ([6, 9], (12, 14, 16)), ([13], (13, 14, 16)), ([9, 15], (14, 15, 16))):
        run._stopped_at = stops
        monkeypatch.setattr(soak_run, "results", lambda _, right=right: kept(*right))
        run._finished(reference)
        monkeypatch.setattr(soak_run, "results", lambda _: kept(14, 16))
        with pytest.raises(Lost, match="differs in checkpoints"):
            run._finished(reference)
