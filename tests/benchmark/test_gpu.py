"""The GPU benchmark on the CPU: what it reports, and that it keeps to its time. No timing is asserted."""

import inspect
import json

import pytest
import torch

from lit_gans.benchmark import gpu as command
from lit_gans.benchmark import gpu_report
from lit_gans.benchmark.gpu import gpu
from lit_gans.benchmark.gpu_cells import MODES, Cell
from lit_gans.benchmark.gpu_races import races
from lit_gans.benchmark.report import markdown
from lit_gans.common.errors import RefusedInput


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "gpu.json"
    settings = {"modes": ("fp32", "bf16", "fp16"), "batch_sizes": (4,), "gans": ("dcgan", "wgan_gp")}
    return gpu("smoke", output=str(path), device="cpu", **settings), path


@pytest.mark.slow
def test_cells_are_measured_and_written(smoke):
    result, path = smoke
    assert json.loads(path.read_text()) == result
    assert [(cell["gan"], cell["mode"]) for cell in result["cells"]] == [
        (gan, mode) for gan in ("dcgan", "wgan_gp") for mode in ("fp32", "bf16")
    ]
    for cell in result["cells"]:
        assert min(cell["images_per_second"], cell["share_of_matrix_product"], cell["seconds"]["median"]) > 0
        images = 4 * {"dcgan": 1, "wgan_gp": 5}[cell["gan"]]
        assert cell["images_per_second"] == pytest.approx(images / cell["seconds"]["median"])
    assert set(result["steps"]) == {f"{gan} {mode} 4" for gan in ("dcgan", "wgan_gp") for mode in ("tf32", "bf16")}
    assert all(race["first_step"]["equal"] for race in result["steps"].values())
    assert all(race["speedup_over_tutorial"]["median"] > 0 for race in result["steps"].values())
    assert result["data"]["placement"] == "device"
    assert result["evaluation"]["images_per_second"] > 0


def test_tables_for_the_documentation():
    cell = {"gan": "gan", "mode": "bf16", "batch_size": 64, "images_per_second": 1234.5}
    cells = [cell | {"share_of_matrix_product": 0.25, "peak_memory": 2**30}]
    text = markdown([gpu_report._cells({"cells": cells})], ["on a card"])
    assert text.splitlines() == [
        "images/s (% of the bf16 matrix product's operations, MiB):",
        "",
        "|  | bf16 |",
        "|---|---|",
        "| gan 64 | 1234 (25.0 %, 1024) |",
        "",
        "- on a card",
    ]


@pytest.mark.slow
def test_what_fails_is_named_and_the_rest_is_measured(smoke):
    failed = smoke[0]["failed"]
    assert set(failed) == {"dcgan fp16 4", "wgan_gp fp16 4"}
    assert all("needs a CUDA device" in sentence for sentence in failed.values())


def test_cells_without_time_are_listed(capsys, tmp_path):
    settings = {"modes": ("fp32", "compile"), "batch_sizes": (4,), "gans": ("gan", "dcgan")}
    result = gpu("smoke", minutes=1e-6, device="cpu", output=str(tmp_path / "gpu.json"), **settings)
    assert "- not run, for want of time: race of dcgan tf32 4," in (tmp_path / "gpu.md").read_text()
    parts = ["race of dcgan tf32 4", "race of dcgan bf16 4", "data", "evaluation"]
    cells = ["gan fp32 4", "dcgan fp32 4", "gan compile 4", "dcgan compile 4"]
    assert (result["cells"], result["not_run"]) == ([], [*parts, *cells])
    printed = capsys.readouterr().out
    assert f"not run, for want of time: {', '.join([*parts, *cells])}" in " ".join(printed.split())
    assert json.loads(printed.splitlines()[-1]) == result


def test_small_batches_come_first_and_compilation_last():
    cells = command._ordered(("dcgan", "gan"), ("compile", "bf16"), (64, 128))
    assert [str(cell) for cell in cells][:5] == [
        "dcgan bf16 64",
        "gan bf16 64",
        "dcgan bf16 128",
        "gan bf16 128",
        "dcgan compile 64",
    ]
    assert Cell("gan", "compile", 128) == cells[-1]


def test_every_registered_gan_and_every_mode_is_measured():
    defaults = {name: parameter.default for name, parameter in inspect.signature(gpu).parameters.items()}
    ours = {name for name, cls in command.registered().items() if cls.__module__.startswith("lit_gans.")}
    assert set(defaults["gans"]) == ours
    assert defaults["modes"] == tuple(MODES)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_is_refused_by_default():
    with pytest.raises(RefusedInput, match="device=cuda: torch finds no CUDA device here; use device=cpu"):
        gpu("smoke")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_all_modes_on_a_gpu():
    result = gpu("smoke", gans=("dcgan", "wgan_gp"), batch_sizes=(8,), minutes=4)
    assert not result["failed"]
    assert len(result["cells"]) == 2 * len(MODES)
    assert result["cells"][0]["peak_memory"] > 0


def test_gans_with_a_tutorial_race_and_one_of_them_compiled():
    gans = {name: command.registered()[name] for name in ("gan", "dcgan", "sngan", "wgan_gp", "d2gan")}
    cells = [str(cell) for cell in races(gans, 64, torch.device("cuda"))]
    raced = [f"{gan} {mode} 64" for gan in ("dcgan", "sngan", "wgan_gp", "d2gan") for mode in ("tf32", "bf16")]
    assert sorted(cells) == sorted([*raced, "dcgan compile 64"])
    assert "dcgan compile 64" not in map(str, races(gans, 64, torch.device("cpu")))
