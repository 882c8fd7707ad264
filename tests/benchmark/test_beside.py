"""What a run does beside its step: moments are counted once, and the rows add up to the run."""

import json
import time

import pytest

from lit_gans.benchmark.beside import KINDS, ExclusiveTimes, kind_of, run


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("[Strategy]SingleDeviceStrategy.training_step", "step"),
        ("[_TrainingEpochLoop].train_dataloader_next", "data"),
        ("[Callback]Checkpoint.on_train_batch_end", "checkpoint"),
        ("[Callback]GenerativeMetrics{'x': 1}.on_train_start", "metrics"),
        ("[Callback]Throughput.on_train_batch_end", "other callbacks"),
        ("[Logger]CSVMetrics", "CSV"),
        ("run_training_batch", "Lightning, start and end"),
    ],
)
def test_actions_have_kinds(action, kind):
    assert kind_of(action) == kind


def test_each_moment_is_counted_once_for_the_outermost_hook(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    times = ExclusiveTimes()
    with times.profile("fit"):  # from 0
        save, nested = "[Callback]Checkpoint.on_train_batch_end", "[Callback]EMA.on_save_checkpoint"
        with times.profile(save), times.profile(nested):  # from 1 and from 2
            pass
        with times.profile("[Logger]CSVMetrics"):  # from 5
            pass
    assert times.seconds == {kind: {"checkpoint": 3, "CSV": 1, KINDS[-1]: 3}.get(kind, 0) for kind in KINDS}


@pytest.mark.slow
def test_the_rows_add_up_to_the_run(tmp_path, capsys):
    result = run("smoke", output=str(tmp_path / "run.json"))
    assert json.loads((tmp_path / "run.json").read_text()) == result
    for clock in ("seconds", "processor_seconds"):
        assert all(result[clock][kind] > 0 for kind in KINDS)
        assert sum(result[clock].values()) == pytest.approx(result["profiled_run"][clock], rel=0.01)
    printed = capsys.readouterr().out
    assert all(text in printed for text in (*KINDS, "not measured"))
