"""`lit-gans bench`: what it measures, what it lists instead, and what it writes. No timing is asserted."""

import json
import math
from dataclasses import asdict
from itertools import product

import pytest
import torch
from torch import nn

from lit_gans.cli.commands.bench import Cell, _table, by_priority
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.losses import logistic_discriminator, non_saturating_generator
from lit_gans.training.module import AdversarialModule

TINY = ["device=cpu", "batch_sizes=[4]", "image_size=16", "width=4", "seconds=0.01"]


@pytest.mark.runs
def test_cells_are_measured_written_and_shown(ran, tmp_path):
    out = ran("bench", "gans=[dcgan,wgan_gp]", "modes=[fp32,bf16,fp16]", "output=new/a.json", *TINY)
    result = json.loads((tmp_path / "new/a.json").read_text())
    measured = [(cell["gan"], cell["mode"]) for cell in result["cells"]]
    assert measured == [(gan, mode) for gan in ("dcgan", "wgan_gp") for mode in ("fp32", "bf16")]
    for cell in result["cells"]:
        images = 4 * {"dcgan": 1, "wgan_gp": 5}[cell["gan"]]
        assert cell["images_per_second"] == pytest.approx(images / cell["seconds"])
        assert cell["peak_memory"] is None or cell["peak_memory"] > 2**20
    assert set(result["failed"]) == {"dcgan fp16 4", "wgan_gp fp16 4"}, "and the rest is measured"
    table = (tmp_path / "new/a.md").read_text()
    heading, _, *rows = [
        [value.strip() for value in line.split("|")[1:-1]] for line in table.split("\n\n")[0].split("\n")
    ]
    assert heading == ["GAN", "batch", "strategy", "mode", "images/s", "ms", "operations", "peak MiB"], "of a CPU"
    assert [(row[0], row[3]) for row in rows] == measured
    operations = [cell["operations"] for cell in result["cells"]]
    assert [row[6] for row in rows] == [f"{number:,}" for number in operations]
    assert 90 < operations[0] < operations[1] < operations[2], "bf16 converts, and WGAN-GP has five steps and a penalty"
    assert table in out
    assert "- failed: dcgan fp16 4: mode fp16 needs a CUDA device." in table


def test_a_bench_without_any_measurement_fails(refused):
    said = refused("bench", "gans=[dcgan,sngan]", "modes=[fp16]", *TINY)
    assert "no combination was measured; the first, dcgan fp16 4, failed: mode fp16 needs a CUDA device." in said


class Dense(AdversarialModule):
    """Has neither widths nor patches."""

    def __init__(self, **settings):
        super().__init__(**settings)
        num = math.prod(self.image_shape)
        self.generator = nn.Sequential(nn.Linear(self.latent_dim, num), nn.Unflatten(1, self.image_shape))
        self.discriminator = nn.Sequential(nn.Flatten(), nn.Linear(num, 1))

    def discriminator_losses(self, real, fake, batch):
        return {"discriminator": logistic_discriminator(self.discriminator(real), self.discriminator(fake))}

    def generator_loss(self, fake, batch):
        return non_saturating_generator(self.discriminator(fake))


def test_a_gan_whose_networks_have_no_width_is_measured(ran, tmp_path, monkeypatch):
    monkeypatch.setattr("lit_gans.cli.commands.bench.registered", lambda: {"dense": Dense})
    ran("bench", "gans=[dense]", "modes=[fp32]", "output=a.json", *TINY)
    result = json.loads((tmp_path / "a.json").read_text())
    assert [cell["gan"] for cell in result["cells"]] == ["dense"], result["failed"]


def test_every_value_is_measured_early_and_compiled_networks_of_other_gans_last():
    values = product(["dcgan", "sngan", "r3gan"], ["fp32", "bf16", "compile"], [64, 128, 256], ["auto", "fsdp"])
    ordered = by_priority([Cell(*each) for each in values])
    first = ordered[:8]  # one cell, and the 2 + 2 + 2 + 1 cells that differ from it in one value
    assert [str(cell) for cell in first] == [
        *("dcgan fp32 64", "dcgan fp32 128", "dcgan fp32 256", "dcgan bf16 64", "dcgan compile 64"),
        *("sngan fp32 64", "r3gan fp32 64", "dcgan fp32 64 fsdp x 1"),
    ]
    # the 18 cells that differ in two values
    assert (
        {str(cell) for cell in ordered[8:26] if cell.mode == "compile"}
        == {str(cell) for cell in ordered[21:26]}
        == {
            *(
                "dcgan compile 128",
                "dcgan compile 256",
                "sngan compile 64",
                "r3gan compile 64",
                "dcgan compile 64 fsdp x 1",
            )
        }
    )
    assert len({*ordered}) == 54


def test_what_there_is_no_time_for_is_listed(command, tmp_path):
    (tmp_path / "a.md").touch()
    some = ["gans=[gan,dcgan]", "modes=[compile,bf16]", "batch_sizes=[8,4]", "minutes=0.00001", "output=a.json"]
    code, _, err = command("bench", "device=cpu", *some)
    assert code == 0
    assert "a.md will be replaced" in err
    result = json.loads((tmp_path / "a.json").read_text())
    order = ["gan bf16 4", "gan bf16 8", "gan compile 4", "dcgan bf16 4", "dcgan bf16 8"]
    assert result["not_run"] == [*order, "gan compile 8", "dcgan compile 4", "dcgan compile 8"]
    assert "- not run, no time left: gan bf16 4" in (tmp_path / "a.md").read_text()


def test_a_cell_without_memory_says_so_in_the_table_and_the_rest_is_measured(ran, tmp_path, monkeypatch):
    losses = DCGAN.discriminator_losses

    def with_little_memory(module, real, fake, batch):
        if len(real) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return losses(module, real, fake, batch)

    monkeypatch.setattr(DCGAN, "discriminator_losses", with_little_memory)
    ran("bench", "gans=[dcgan]", "modes=[fp32,bf16]", "output=a.json", *TINY, "batch_sizes=[8,4]")
    result = json.loads((tmp_path / "a.json").read_text())
    assert [(cell["mode"], cell["batch_size"]) for cell in result["cells"]] == [("fp32", 4), ("bf16", 4)]
    assert (result["out_of_memory"], result["failed"]) == (["dcgan fp32 8", "dcgan bf16 8"], {})
    rows = [line.split("|") for line in (tmp_path / "a.md").read_text().splitlines()[2:6]]
    assert [[row[2].strip(), row[4].strip()] for row in rows] == [
        ["4", "fp32"],
        ["4", "bf16"],
        ["8", "fp32"],
        ["8", "bf16"],
    ]
    assert [row[5].strip() == "out of memory" for row in rows] == [False, False, True, True]


def test_on_a_gpu_the_table_has_both_times_and_what_limits():
    cells = [Cell("sngan", "bf16", 64), Cell("sngan", "compile", 64)]
    times = {"images_per_second": 4000.0, "seconds": 0.08, "peak_memory": 3 * 2**20}
    launches = {"operations": 2846, "host_seconds": 0.03, "device_seconds": 0.02}
    compiled = {"operations": None, "host_seconds": 0.01, "device_seconds": 0.02}
    found = [asdict(cell) | times | more for cell, more in zip(cells, (launches, compiled), strict=True)]
    table = _table({"cells": found, "out_of_memory": []}, cells)
    heading, one, other = ([value.strip() for value in table[line].split("|")[5:-1]] for line in (0, 2, 3))
    assert heading == ["images/s", "ms", "operations", "host ms", "device ms", "peak MiB", "limit"]
    assert one == ["4000", "80", "2,846", "30", "20", "3", "host-bound"]
    assert other == ["4000", "80", "", "10", "20", "3", "device-bound"]


@pytest.mark.slow
def test_several_processes_train_together(ran, tmp_path):
    some = ["gans=[gan]", "modes=[fp32]", "strategies=[ddp]", "processes=2", "output=a.json"]
    ran("bench", *some, *TINY)
    (cell,) = json.loads((tmp_path / "a.json").read_text())["cells"]
    assert cell["images_per_second"] == pytest.approx(4 * 2 / cell["seconds"])
