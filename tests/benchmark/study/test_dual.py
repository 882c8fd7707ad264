"""The comparison of GANs after as many images and as many seconds, on results made by hand."""

from dataclasses import replace

from lit_gans.benchmark.study.contract import Cell, Result
from lit_gans.benchmark.study.parts.dual import Dual, equal

from .test_study import settings


def run(gan, seed, *points, memory=2**20):
    """A result whose measurements are (iteration, images, seconds, FID)."""
    named = [dict(zip(("iteration", "images", "s", "metric/fid_digits"), point, strict=True)) for point in points]
    cell = Cell("dual", f"{gan}, seed {seed}", {"gan": gan, "batch_size": 8, "seed": seed})
    return Result(cell, ({"points": named, "memory": memory},))


def test_gans_are_compared_up_to_the_images_and_the_seconds_of_the_shortest_run():
    results = [
        run("r3gan", 0, (0, 0, 0.0, 900.0), (10, 80, 5.0, 40.0), (20, 160, 10.0, 30.0), memory=3 * 2**20),
        run("r3gan", 1, (0, 0, 0.0, 900.0), (10, 80, 6.0, 50.0), (20, 160, 12.0, 60.0), memory=5 * 2**20),
        run("wgan_gp", 0, (0, 0, 0.0, 900.0), (10, 400, 4.0, 70.0), (20, 800, 8.0, 35.0)),
        run("dcgan", 0, (0, 0, 0.0, 900.0), (10, 80, 9.0, 20.0), (20, 160, 18.0, 25.0)),
    ]
    rows = {row[0]: row[2:] for row in equal(results).rows}
    assert rows["r3gan"] == ["160", "45.00", "40.00", "8", "45.00", "45.00", "15", "4"]
    assert rows["wgan_gp"] == ["160", "not measured by then", "", "8", "35.00", "35.00", "100", "1"]
    assert rows["dcgan"] == ["160", "25.00", "20.00", "8", "not measured by then", "", "9", "1"]


def test_the_gans_are_those_of_the_study_or_the_given_ones():
    own = settings(1)
    for gans, chosen in {("dcgan", "d2gan", "d3gan"): own, ("r3gan",): replace(own, dual_gans=("r3gan",))}.items():
        assert {cell.settings["gan"] for cell in Dual().cells(chosen)} == {*gans}
