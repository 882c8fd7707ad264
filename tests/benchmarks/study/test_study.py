"""The study from the command to the report; its times are meaningless and not looked at."""

import html
import json
import re
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from benchmarks.study.command import study
from benchmarks.study.contract import Cell, Result
from benchmarks.study.launch import rank_variables
from benchmarks.study.parts import optimizations
from benchmarks.study.parts.optimizations import Optimizations
from benchmarks.study.plotting import figure, logarithmic
from benchmarks.study.registry import parts
from benchmarks.study.settings import PRESETS, Settings, preset
from lit_gans.cli.help import command_help
from lit_gans.common.errors import RefusedInput
from lit_gans.config.docs import as_typed, meanings


def settings(*ranks, gans=("dcgan", "pix2pix"), **sizes):
    return preset("smoke", Settings("cpu", ("cpu",), ranks, 1, gans), sizes)


def results(folder):
    return json.loads((folder / "results.json").read_text())["parts"]


def test_two_cells_are_measured_and_reported_once(tmp_path, caplog, capsys):
    given = {"preset": "smoke", "parts": ["batch"], "gans": ["gan"], "output": str(tmp_path), "repeats": 1}
    sizes = {"batch_sizes": [2, 40_000], "step_limit": 5}  # no step of 8 images takes less than 1 ms
    with caplog.at_level("INFO"):
        counted = study(**given, sizes=sizes)
    assert counted == {"cells": 2, "measured": 1, "unavailable": 1}
    assert "cell 2 of 2: batch: gan, batch 40000, cpu, about" in caplog.text
    measured, refused = results(tmp_path)["batch"]
    assert measured["repeats"][0]["images_per_second"] > 0
    assert measured["repeats"][0]["steps"] == 2
    assert re.fullmatch(r"a step would take about \d+ s here, longer than step_limit=5\.", refused["reason"])
    report = (tmp_path / "report.md").read_text()
    assert refused["reason"] in report
    assert (tmp_path / "pictures" / "batch_images_per_second_on_cpu.svg").is_file()
    caplog.clear()
    with caplog.at_level("INFO"):
        study(**given, sizes=sizes)
    assert "cell" not in caplog.text
    assert (tmp_path / "report.md").read_text() == report
    assert str(tmp_path / "report.html") in capsys.readouterr().out


@pytest.mark.parametrize("name", list(parts()))
def test_every_part_names_its_cells_once_and_as_json(name):
    cells = parts()[name].cells(settings(1, 2))
    assert cells
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.part for cell in cells} == {name}
    for cell in cells:
        assert cell == Cell(**json.loads(json.dumps(vars(cell))))
        assert cell.key({}) == Cell(**json.loads(json.dumps(vars(cell)))).key({})
    assert len({cell.key({}) for cell in cells if cell.reason is None}) == sum(cell.reason is None for cell in cells)


def test_one_process_has_reasons_where_others_are_needed():
    cells = {cell.name: cell for cell in parts(["optimizations"])["optimizations"].cells(settings(1, gans=("dcgan",)))}
    assert cells["dcgan, compression bf16"].reason == "one process has nobody to communicate with."
    assert cells["dcgan, precision bf16"].reason is None
    cells = {cell.name: cell for cell in parts(["scaling"])["scaling"].cells(settings(1, 3, gans=("dcgan",)))}
    assert cells["dcgan, strong, 3"].reason == "a batch of 2 cannot be split over 3 processes."


def test_every_optimization_trains_on_as_many_images_as_its_baseline():
    cells = parts(["optimizations"])["optimizations"].cells(settings(1, 2, gans=("dcgan",), fixed_steps=10))
    images = {}
    for cell in cells:
        values = cell.settings
        steps = values["steps"] + values["warmup"]
        num = steps * values["batch_size"] * values["model"]["accumulate_gradients"] * cell.ranks
        images.setdefault(values["batch_size"], set()).add(num)
    assert images == {2: {2 * 2 * 16}, 1: {2 * 16}}


def test_what_binding_adds_is_compared_with_shared_and_with_unshared_threads(monkeypatch):
    part, threads = Optimizations(), torch.get_num_threads()
    monkeypatch.setattr(optimizations, "train", lambda values: {"threads": torch.get_num_threads()})
    cells = {cell.settings["variant"]: cell for cell in part.cells(replace(settings(1, 2, gans=("gan",)), cores=3))}
    try:
        assert part.measure(cells["all cores in each"]) == {"threads": 3}
    finally:
        torch.set_num_threads(threads)
    assert part.measure(cells["bound to cores"]) == {"threads": threads}
    speeds = {"baseline": 100.0, "one process": 150.0, "bound to cores": 125.0}
    names = ("images_per_second", "generator_images_per_second")
    rest = {"loss/generator": 0.0, "peak_memory": 0}
    measured = [
        Result(cells[variant], tuple(dict.fromkeys(names, each) | rest for each in (speed, speed + 10)))
        for variant, speed in speeds.items()
    ]
    (table,) = (t for t in part.tables({"optimizations": measured}) if t.title == "Processes and cores")
    shown = ["155.0 (152.5 .. 157.5)", "-", "105.0 (102.5 .. 107.5)", "130.0 (127.5 .. 132.5)", "1.24"]
    assert table.rows == [["gan", *shown]]


@pytest.mark.parametrize(
    ("values", "scale", "ticks"),
    [
        ([1, 2, 8, 1024], "log", ["1", "2", "8", "1,024"]),  # a few numbers of processes
        ([300_000.0, 2_000_000.0], "log", ["500,000", "1,000,000", "2,000,000"]),
        ([2200.5, 3400.5], "linear", None),
    ],
)
def test_axes_have_plain_numbers(values, scale, ticks):
    drawn = figure()
    (axes,) = drawn.axes
    axes.plot(values, values)
    logarithmic(axes, "x", values)
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, "linear")
    if ticks:
        drawn.draw_without_rendering()
        low, high = axes.get_xlim()
        shown = [label.get_text() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
        assert shown == ticks


def test_variables_of_the_ranks_of_two_nodes():
    found = [rank_variables(rank, 4, 2) for rank in range(4)]
    assert [(v["LOCAL_RANK"], v["GROUP_RANK"], v["LOCAL_WORLD_SIZE"]) for v in found] == [
        ("0", "0", "2"),
        ("1", "0", "2"),
        ("0", "1", "2"),
        ("1", "1", "2"),
    ]
    assert rank_variables(0, 1, 8)["LOCAL_WORLD_SIZE"] == "1"


def test_sizes_replace_those_of_the_preset():
    assert settings(1, steps=7).steps == 7
    assert settings(1, seeds=[3, 4]).seeds == (3, 4)
    assert (settings(1, width=None).width, settings(1, dual_seconds=1.5).dual_seconds) == (None, 1.5)
    wrong = [{"ranks": (1,)}, {"seeds": 1}, {"steps": [1]}, {"steps": True}, {"batch_sizes": []}, {"steps": 1.5}]
    wrong += [{"steps": None}, {"seconds": float("nan")}, {"dual_seconds": float("inf")}, {"seeds": [0.5]}]
    for each in wrong:
        with pytest.raises(RefusedInput, match="sizes"):
            settings(1, **each)


def test_the_help_names_every_size_with_its_unit_and_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    listed = command_help("bench study").partition("\nSizes")[2].partition("\n\n")[0]
    found = {line.split()[0] for line in listed.splitlines() if re.match(r"  \w", line)}
    text = " ".join(listed.split())
    for field in fields(Settings):
        try:
            preset("full", settings(1), {field.name: field.default})
        except RefusedInput:  # it cannot be given
            assert field.name not in found
            continue
        of_cpu = f"; {as_typed(PRESETS['cpu'][field.name])} with preset=cpu" if field.name in PRESETS["cpu"] else ""
        name, meaning = field.name, meanings(Settings)[field.name]
        assert f" {name} {meaning} [default: {as_typed(field.default)}{of_cpu}]" in text
        assert re.search(r"\bimages|pixels|channels|seconds|number of|names of|seeds?\b", meaning), name
        found.remove(name)
    assert not found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_study_at_reduced_size(tmp_path):
    counted = study(preset="smoke", gans=["dcgan"], max_ranks=2, repeats=1, output=str(tmp_path))
    found = results(tmp_path)
    assert list(found) == list(parts())
    assert counted["cells"] == sum(map(len, found.values()))
    for name, cells in found.items():
        for cell in cells:
            assert bool(cell["repeats"]) != bool(cell["reason"]), cell["cell"]["name"]
            assert not cell["failed"], name
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r'(?:src|href)="(?!data:)', page), "self-contained"
    for part in parts().values():
        assert html.escape(part.title) in page
    for result in found["overlap"]:
        if result["repeats"]:
            assert result["repeats"][0]["sum"] == pytest.approx(result["repeats"][0]["step"], rel=0.02)


@pytest.mark.slow
def test_torchrun_starts_the_processes_of_wgan_gp(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", sys.executable]
    command += ["-m", "lit_gans", "bench", "study", "preset=smoke", "parts=[scaling]", "gans=[wgan_gp]"]
    subprocess.run([*command, "repeats=1", f"output={tmp_path}"], check=True)
    found = {result["cell"]["name"]: result for result in results(tmp_path)["scaling"]}
    assert set(found) == {f"wgan_gp, {kind}, {ranks}" for kind in ("weak", "strong") for ranks in (1, 2)}
    assert all(len(result["repeats"]) == 1 for result in found.values())
