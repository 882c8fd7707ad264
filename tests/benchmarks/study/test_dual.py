"""The comparison of GANs after as many images and as many seconds, on results made by hand and on small trainings."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from lightning.pytorch import LightningModule, Trainer

from benchmarks.study.compared import after, at_the_end
from benchmarks.study.contract import Cell, Result
from benchmarks.study.judges import JUDGES
from benchmarks.study.parts import dual
from benchmarks.study.parts.dual import Dual, Trace
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.throughput import Throughput
from lit_gans.common.errors import RefusedInput
from lit_gans.config.build import resolve
from lit_gans.config.hydra_app import compose

from .test_study import settings

SETTINGS = {"batch_size": 8, "images": 160, "seconds": 10.0}


def run(gan, seed, *points, data="digits", memory=2**20):
    """A result whose measurements are (iteration, images, seconds, first score, second score)."""
    keys = ("iteration", "images", "s", *JUDGES[data].scores)
    named = [dict(zip(keys, point, strict=True)) for point in points]
    cell = Cell("dual", f"{gan}, seed {seed}", {"gan": gan, "data": data, "seed": seed, **SETTINGS})
    return Result(cell, ({"points": named, "memory": memory, "utilization": {}, "frames": []},))


RUNS = [
    run("r3gan", 0, (10, 80, 6.0, 40.0, 2), (16, 128, 10.1, 30.0, 3), (20, 160, 13.0, 28.0, 5), memory=3 * 2**20),
    run("r3gan", 1, (10, 80, 6.0, 50.0, 4), (16, 128, 10.2, 60.0, 3), (20, 160, 13.5, 28.0, 1), memory=5 * 2**20),
    run("wgan_gp", 0, (2, 80, 1.0, 70.0, 1), (4, 160, 2.0, 80.0, 1), (20, 800, 10.5, 35.0, 1)),
]


def test_trainings_are_compared_up_to_the_measurement_that_was_due():
    images, seconds = ({row[0]: row[2:] for row in after(unit, "digits", RUNS).rows} for unit in ("images", "s"))
    assert images["r3gan"] == ["28 (28 .. 28)", "28 (28 .. 28)", "3 (1 .. 5)", "4.5 (4 .. 5)"]
    assert images["wgan_gp"] == ["80 (80 .. 80)", "70 (70 .. 70)", "1 (1 .. 1)", "1 (1 .. 1)"]
    assert seconds["r3gan"] == ["45 (30 .. 60)", "40 (30 .. 50)", "3 (3 .. 3)", "3.5 (3 .. 4)", "13", "4"]
    assert seconds["wgan_gp"] == ["35 (35 .. 35)", "35 (35 .. 35)", "1 (1 .. 1)", "1 (1 .. 1)", "76", "1"]


def test_of_modes_the_largest_number_is_best_and_the_level_is_below_the_worst():
    own = [
        run("r3gan", 0, (10, 80, 5.0, 300, 3.0), (20, 160, 10.0, 220, 2.0), data="stacked_digits"),
        run("dcgan", 0, (10, 80, 5.0, 180, 4.0), (20, 160, 10.0, 210, 3.5), data="stacked_digits"),
    ]
    rows = {row[0]: row for row in after("images", "stacked_digits", own).rows}
    assert rows["r3gan"][2:4] == ["220 (220 .. 220)", "300 (300 .. 300)"]
    rows = {row[0]: row[5:8] for row in at_the_end("stacked_digits", own).rows}
    assert rows == {"r3gan": ["190.9", "5.0", "10"], "dcgan": ["190.9", "10.0", "20"]}


@pytest.mark.parametrize(
    ("seconds", "measured"),
    [
        (None, [(4, 40), (8, 80)]),
        (4.0, [(2, 20), (4, 40), (8, 80)]),  # 4 iterations reach half of the images and all of the seconds
        (20.0, [(4, 40), (8, 80), (10, 100), (20, 200)]),
    ],
)
def test_measures_on_the_way_to_both_ends_and_stops_after_both(seconds, measured, monkeypatch):
    """An iteration has 10 images and takes a second."""
    given = {"data": "digits", "batch_size": 5, "images": 80, "seconds": seconds, "evaluations": 2, "film": False}
    throughput, trainer = Mock(Throughput, seconds=0), Mock(Trainer, global_step=0, should_stop=False, callbacks=[])
    scores = dict.fromkeys(JUDGES["digits"].scores, 1.0)
    peaks = iter(range(7, 99))
    monkeypatch.setattr(dual, "peak_memory", lambda device: next(peaks))
    trace = Trace(given | {"device": "cpu"}, throughput, Mock(Measurement, measure=lambda *_: scores))
    while not trainer.should_stop:
        trainer.global_step = throughput.seconds = trainer.global_step + 1
        throughput.utilization = {"utilization/waiting": trainer.global_step == 1}
        trace.on_train_batch_end(trainer, Mock(LightningModule, n_critic=2))
    assert [(point["iteration"], point["images"]) for point in trace.points] == measured
    assert trace.points[-1] == {"iteration": measured[-1][0], "images": measured[-1][1], "s": measured[-1][0], **scores}
    assert trace.memory == 7, "before the first measurement"
    assert trace.utilization == pytest.approx({"utilization/waiting": 1 / trainer.global_step}), "of all iterations"


def test_the_gans_and_the_data_are_those_of_the_study_or_the_given_ones():
    own = settings(1)
    for gans, chosen in {("dcgan", "d2gan", "d3gan"): own, ("r3gan",): replace(own, dual_gans=("r3gan",))}.items():
        assert {cell.settings["gan"] for cell in Dual().cells(chosen)} == {*gans}
    found = {cell.settings["experiment"] for cell in Dual().cells(settings(1, dual_data=["digits", "emoji"]))}
    assert found == {f"{gan}_{data}" for gan in ("dcgan", "d2gan", "d3gan") for data in ("digits", "emoji")}
    with pytest.raises(RefusedInput, match=r"sizes\.dual_data: there is no 'emojis'; did you mean 'emoji'"):
        Dual().cells(settings(1, dual_data=["emojis"]))
    for wrong in ("emoji", [], [3]):
        with pytest.raises(RefusedInput, match=r"sizes\.dual_data=.* expected a list of names"):
            settings(1, dual_data=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("data", JUDGES)
def test_every_gan_of_the_comparison_is_measured(data, tmp_path):
    gans = ("r3gan", "dcgan", "sngan", "wgan_gp", "d2gan")
    sizes = {"dual_data": [data], "dual_images": 64, "dual_seconds": 1, "dual_samples": 50, "seeds": [0]}
    own = replace(settings(1, **sizes), dual_gans=gans, width=8)
    if data == "emoji":  # its judge takes minutes for the real images
        for cell in Dual().cells(own):
            config = resolve(compose(*dual._overrides(cell.settings, str(tmp_path))))
            assert config["metrics"]["scores"]["kid"]["subset_size"] == 50
        return
    results = [Result(cell, (Dual().measure(cell),)) for cell in Dual().cells(own)]
    tables = Dual().tables({"dual": results})
    assert [len(table.rows) for table in tables] == [5, 5, 5]
    assert {len(row) == len(table.columns) for table in tables for row in table.rows} == {True}
