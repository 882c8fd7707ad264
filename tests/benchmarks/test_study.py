"""The study: what is measured, stored and taken up again, and that a step is divided without remainder."""

import json
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from benchmarks.study import command, measure, plots, processes
from benchmarks.study.cells import PRESETS, Cell, Machine, Sizes
from benchmarks.study.command import study
from benchmarks.study.measure import curve
from benchmarks.study.parts import PARTS, planned, tables_of
from benchmarks.study.report import markdown
from benchmarks.study.timeline import device_shares, divide
from lit_gans.common.errors import RefusedInput
from lit_gans.config.hydra_app import compose
from lit_gans.config.registry import gans

MACHINE = Machine("cpu", ("cpu",), (1, 2), 2, sorted(gans()))


def test_two_cells_are_measured_reported_and_not_measured_again(tmp_path, monkeypatch, capsys):
    arguments = {"parts": ["batch"], "preset": "smoke", "gans": ["gan"], "repeats": 1, "output": str(tmp_path)}
    monkeypatch.setattr(command, "commit", lambda: "abc")
    assert study(**arguments) == {"cells": 2, "rows": 2, "failed": []}
    content = json.loads((tmp_path / "results.json").read_text())
    assert [(row["gan"], row["batch_size"]) for row in content["rows"]] == [("gan", 2), ("gan", 4)]
    for row in content["rows"]:
        assert row["images_per_second"] == pytest.approx(row["batch_size"] / row["seconds"])
        assert {"loss/generator", "loss/discriminator", "parameters", "peak_memory", "fit_seconds"} <= row.keys()
    assert "| gan |" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") + page.count("image/svg+xml") == 1
    monkeypatch.setattr(processes.Processes, "measure", lambda *_: pytest.fail("it is measured again"))
    assert study(**arguments)["rows"] == 2
    monkeypatch.setattr(command, "commit", lambda: "def")
    with pytest.raises(RefusedInput, match=r"commit=abc, now def: .* any_commit=true"):
        study(**arguments)
    assert study(**arguments, any_commit=True)["rows"] == 2
    monkeypatch.setattr(command, "commit", lambda: "abc")
    before = (tmp_path / "results.json").read_bytes()
    for others in ({"gans": ["dcgan"]}, {"sizes": {"width": 8}}):
        with pytest.raises(
            RefusedInput, match=r"has 2 measurements of other GANs, sizes or presets, such as batch: gan"
        ):
            study(**arguments | others)
    assert (tmp_path / "results.json").read_bytes() == before
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(RefusedInput, match="cannot be read"):
        study(**arguments)


def test_reasons_and_errors_are_listed_and_errors_forgotten(tmp_path, monkeypatch):
    answers = iter(
        [("reason", "too slow."), ("error", "Traceback\nValueError: x"), ("result", {"images_per_second": 1.0})]
    )
    monkeypatch.setattr(processes.Processes, "measure", lambda *_: next(answers))
    monkeypatch.setattr(command, "commit", lambda: "abc")
    monkeypatch.setattr(command, "write_page", lambda *_: None)
    monkeypatch.setattr(command, "tables_of", lambda _: {})
    arguments = {"parts": ["batch"], "preset": "smoke", "gans": ["gan"], "repeats": 1, "output": str(tmp_path)}
    assert study(**arguments)["failed"] == ["batch: gan, batch 4, cpu"]
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["reason"] for row in rows] == ["too slow.", "failed: ValueError: x"]
    assert study(**arguments)["failed"] == [], "the second one is measured again, the first is not"
    assert next(answers, None) is None


def test_each_cell_is_measured_once_before_any_is_repeated_and_late_ones_are_not(tmp_path, monkeypatch):
    order = []

    def measure(self, cell):
        order.append(cell.labels["batch_size"])
        return "result", {"generator_images_per_second": 1.0}

    monkeypatch.setattr(processes.Processes, "measure", measure)
    monkeypatch.setattr(command, "write_page", lambda *_: None)
    monkeypatch.setattr(command, "tables_of", lambda _: {})
    arguments = {"parts": ["batch"], "preset": "smoke", "gans": ["gan"], "repeats": 3}
    study(**arguments, output=str(tmp_path / "all"))
    assert order == [2, 4, 4, 2, 2, 4]
    study(**arguments, output=str(tmp_path / "late"), minutes=0.0)
    assert order[6:] == [2, 4]


@pytest.mark.parametrize("batch_size", [8, 64])
def test_a_cell_ends_in_time(monkeypatch, batch_size):
    clock = [0.0]
    monkeypatch.setattr(measure, "now", lambda device: clock[0])
    settings = {"warmup": 1, "steps": 50, "seconds": 2.0, "step_limit": 15.0}
    timing = measure.Clock(Cell("", "", {"batch_size": batch_size, "device": "cpu"}, [], settings), probes=True)
    trainer = SimpleNamespace(should_stop=False, strategy=SimpleNamespace(broadcast=lambda value: value))
    while not trainer.should_stop:
        clock[0] += 0.5
        timing.on_train_batch_end(trainer, SimpleNamespace(device=None))
    assert timing.steps == 4
    assert timing.seconds == pytest.approx(0.5)
    assert clock[0] <= 0.5 * (3 + 4), "two or three steps come before them"


def test_every_part_has_cells_whose_overrides_compose():
    sizes = Sizes(**PRESETS["smoke"])
    found = planned(list(PARTS), sizes, MACHINE)
    assert {cell.part for cell in found} == {*PARTS}
    assert len({(cell.part, cell.name) for cell in found}) == len(found)
    json.dumps([dict(cell.labels) for cell in found])
    composed = set()
    for cell in found:
        if {*cell.overrides} - composed and cell.labels.get("gan", "dcgan") in ("dcgan", "pix2pix"):
            compose(*cell.overrides)
            composed |= {*cell.overrides}


@pytest.mark.parametrize(("device", "ideal"), [("cpu", 10.0), ("cuda", 20.0)])
def test_processes_on_a_cpu_share_its_cores_so_that_one_is_as_fast_as_all(monkeypatch, device, ideal):
    about = {"part": "scaling", "kind": "weak", "gan": "gan", "batch_size": 8, "device": device}
    rows = [about | {"ranks": ranks, "generator_images_per_second": 10.0} for ranks in (1, 2)]
    drawn = []
    monkeypatch.setattr(plots, "_lines", lambda *arguments: drawn.append(arguments))
    list(plots.scaling(rows))
    assert drawn[0][-1] == {"gan": [(1, 10.0), (2, ideal)]}


def test_translations_are_no_curve_of_fid():
    sizes = Sizes(**PRESETS["smoke"], dual_gans=("dcgan", "pix2pix"))
    reasons = {cell.labels["gan"]: cell.reason for cell in planned(["dual"], sizes, MACHINE)}
    assert reasons == {"dcgan": None, "pix2pix": "it has no FID, because it translates images."}


def test_settings_that_cannot_be_measured_say_why():
    alone = Machine("cpu", ("cpu",), (1,), 1, ["dcgan"])
    reasons = {cell.name: cell.reason for cell in planned(["optimizations"], Sizes(**PRESETS["smoke"]), alone)}
    assert reasons["dcgan, compression fp16"] == "one process has nobody to communicate with."
    assert reasons["dcgan, compile"].endswith("takes a minute.")
    assert reasons["dcgan, baseline"] is None


def test_a_step_is_divided_without_remainder():
    found = divide(0, 10, computing=[(0, 4), (6, 7)], communicating=[(3, 6), (6.5, 8)], fetching=[(7.5, 9)])
    assert found == {"computation": 3.5, "communication": 3, "both": 1.5, "data": 1, "idle": 1}
    host = divide(0, 10, computing=[(0, 10)], blocked=[(2, 4), (8, 9)], communicating=[(1, 4)], fetching=[(8, 9)])
    assert host == {"computation": 6, "communication": 2, "both": 1, "data": 1, "idle": 0}


def test_kernels_of_a_device_are_told_apart_by_their_names():
    def event(name, start, end, device=DeviceType.CUDA):
        span = SimpleNamespace(start=start * 1e6, end=end * 1e6)
        return SimpleNamespace(name=name, device_type=device, time_range=span)

    events = [event("cudnn::conv", 0, 4), event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, 6), event("adam", 8, 10)]
    events += [event("study/fetch", 6, 7, DeviceType.CPU), event("aten::conv2d", 0, 10, DeviceType.CPU)]
    found = device_shares(events, 2)
    assert found == {"computation": 2.5, "communication": 1, "both": 0.5, "data": 0.5, "idle": 0.5}


def test_a_training_is_measured_on_its_way():
    tiny = {"seeds": [0], "dual_gans": ["dcgan"], "dual_images": 32, "dual_batch_sizes": [8], "dual_samples": 20}
    sizes = Sizes(**PRESETS["smoke"] | tiny | {"evaluations": 2})
    [cell] = planned(["dual"], sizes, Machine("cpu", ("cpu",), (1,), 1, ["dcgan"]))
    found = curve(cell)
    assert [(point["iteration"], point["images"]) for point in found["points"]] == [(2, 16), (4, 32)]
    assert all(point["metric/fid_digits"] > 100 and 1 <= point["metric/is_digits"] <= 10 for point in found["points"])
    assert 0 < found["points"][0]["s"] < found["points"][1]["s"]
    assert 0 <= found["utilization"]["utilization/waiting"] <= 1
    assert found["utilization"]["utilization/processor"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_part_is_measured(tmp_path):
    result = study(preset="smoke", gans=["dcgan"], repeats=1, output=str(tmp_path), max_ranks=2)
    assert result["failed"] == []
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {row["part"] for row in rows if "reason" not in row} == {*PARTS}
    assert set(tables_of(rows)) == {*PARTS}
    assert all(markdown(table.frame) for found in tables_of(rows).values() for table in found)
