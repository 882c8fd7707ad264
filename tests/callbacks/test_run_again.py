"""A training that is started again in the folder of another run neither replaces that run nor mixes with it."""

import csv

import pytest
import torch
from PIL import Image

from lit_gans import build, compose
from lit_gans.callbacks import PairedMetrics, RunCheckpoint, Samples, StopOnPlateau, Throughput, Watch
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.training.optim import OptimizerConfig

from .test_early_stopping import Given

CELL = ("experiment=dcgan_digits", "metrics=none", "model.generator_width=4", "trainer.accelerator=cpu")


def run_cell(folder, max_steps, **resume):
    """Trains as the guide's cell does."""
    sizes = (f"trainer.max_steps={max_steps}", "data.batch_size=4", "data.image_size=16")
    module, data, trainer = build(compose(*CELL, *sizes, f"trainer.default_root_dir={folder}"))
    trainer.fit(module, datamodule=data, **resume)
    return trainer


def contents(folder):
    """Returns the content of every file, except the event files that TensorBoard's logger opens before any callback."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "tfevents" not in path.name)
    return {path: path.read_bytes() for path in paths}


@pytest.mark.runs
def test_the_cell_of_the_guide_run_twice_leaves_the_first_run_as_it_is(tmp_path):
    folder = tmp_path / "mine"
    run_cell(folder, 3)
    before = contents(folder)
    with pytest.raises(
        RefusedInput, match="has the checkpoints of another run, which this training would overwrite"
    ) as e:
        run_cell(folder, 2)
    assert contents(folder) == before
    last = folder / "checkpoints/last.ckpt"
    assert f'trainer.fit(..., ckpt_path="{last}")' in str(e.value)
    trainer = run_cell(folder, 5, ckpt_path=last)
    assert torch.load(last, weights_only=True)["global_step"] == trainer.global_step == 5


@pytest.mark.runs
def test_a_command_in_the_folder_of_another_run_is_refused(train, tmp_path):
    small = ("experiment=dcgan_digits", "metrics=none", "model.generator_width=4", "data.batch_size=4")
    where = (*small, f"hydra.run.dir={tmp_path / 'run'}")
    assert train(*where, "trainer.max_steps=2") == 0
    before = contents(tmp_path / "run")
    assert train(*where, "trainer.max_steps=1") == 2
    assert "resume=auto of lit-gans train" in train.err
    assert contents(tmp_path / "run") == before
    assert train(*where, "trainer.max_steps=3", "resume=auto") == 0


@pytest.fixture
def again(tiny_gan, random_images, fit, tmp_path):
    """Trains with callbacks in a folder; `resume` is the name of a checkpoint in it."""

    def run(max_steps, *callbacks, model="dcgan", folder="run", resume=None, **arguments):
        where = tmp_path / folder
        module = tiny_gan(
            model, generator_optimizer=OptimizerConfig("SGD", lr=1.0)
        )  # a film drops frames that are alike
        checkpointing = any(isinstance(each, RunCheckpoint) for each in callbacks)
        arguments |= {"default_root_dir": where, "enable_checkpointing": checkpointing}
        path = None if resume is None else where / f"checkpoints/{resume}.ckpt"
        return fit(module, random_images(), max_steps, path, callbacks=list(callbacks), **arguments)

    return run


@pytest.mark.parametrize("left", ["last.ckpt", "last.ckpt.lit_gans_old", "best.ckpt", "step-00000002.ckpt"])
def test_any_checkpoint_that_would_be_replaced_is_protected(again, tmp_path, left):
    folder = tmp_path / "run/checkpoints"
    folder.mkdir(parents=True)
    (folder / left).write_text("a run")
    (folder / "mine.ckpt").touch()
    with pytest.raises(RefusedInput, match=left):
        again(1, RunCheckpoint())
    assert (folder / left).read_text() == "a run"
    (folder / left).unlink()
    assert again(1, RunCheckpoint()).global_step == 1, "a checkpoint of another name would not be replaced"


def test_a_run_resumed_from_another_folder_does_not_replace_a_longer_run_in_its_own(again, tmp_path):
    again(2, RunCheckpoint())
    again(3, Samples(num=4), RunCheckpoint(), folder="other")
    before = contents(tmp_path / "other")
    resumed = {"folder": "other", "resume": "../../run/checkpoints/last"}
    with pytest.raises(RefusedInput, match="checkpoints of another run"):
        again(4, Samples(num=4), RunCheckpoint(), **resumed)
    assert contents(tmp_path / "other") == before
    (tmp_path / "other/checkpoints/last.ckpt").unlink()
    again(1, RunCheckpoint(), folder="other")
    assert again(4, RunCheckpoint(), **resumed).global_step == 4


def test_a_second_fit_of_a_trainer_continues_the_run(again, random_images):
    trainer = again(2, RunCheckpoint())
    trainer.fit_loop.epoch_loop.max_steps = 4
    trainer.fit(trainer.lightning_module, random_images())
    assert trainer.global_step == 4


def frames(path):
    with Image.open(path) as film:
        return film.n_frames


def test_a_film_has_the_grids_of_its_own_run(again, tmp_path):
    folder = tmp_path / "run/samples"
    again(6, Samples(every_n_steps=2, num=4))
    assert frames(folder / "training.gif") == 4
    again(3, Samples(every_n_steps=3, num=4))
    assert frames(folder / "training.gif") == 2, "of iterations 0 and 3, beside the earlier 2, 4 and 6"


def test_without_checkpoints_the_files_of_an_earlier_run_are_kept_and_not_mixed(again, tmp_path, caplog):
    folder = tmp_path / "run"

    def run(max_steps):
        logged = {"logger": CSVMetrics(str(folder)), "log_every_n_steps": 2}
        again(max_steps, Samples(every_n_steps=2, num=4), **logged)
        return contents(folder)

    first = run(6)
    assert "earlier run" not in caplog.text, "nothing was there"
    second = run(4)
    assert {path.name for path in (folder / "samples").iterdir()} == {
        "000000.png",
        "000002.png",
        "000004.png",
        "training.gif",
    }
    assert steps(folder / "metrics.csv") == [1, 3]
    moved = {"samples": "samples-1", "metrics.csv": "metrics-1.csv"}
    for path, content in first.items():
        top, *rest = path.relative_to(folder).parts
        assert second[folder.joinpath(moved[top], *rest)] == content
    assert sorted(text for text in caplog.messages if "earlier run" in text) == [
        f"{folder / 'metrics.csv'} is from an earlier run, and is kept as metrics-1.csv",
        f"{folder / 'samples'} is from an earlier run, and is kept as samples-1",
    ]
    third = run(2)
    assert set(second) <= {*third, folder / "samples/000004.png"}
    assert {path.name for path in folder.iterdir()} == {
        *("samples", "samples-1", "samples-2", "metrics.csv", "metrics-1.csv", "metrics-2.csv")
    }


def test_a_film_has_the_grids_of_the_run_that_was_resumed(again, tmp_path):
    folder = tmp_path / "run"
    again(4, Samples(every_n_steps=1, num=4))  # without a checkpoint
    again(3, Samples(every_n_steps=2, num=4), RunCheckpoint())
    Image.new("RGB", (8, 8)).save(folder / "samples/000009.png")
    again(5, Samples(every_n_steps=5, num=4, seed=1), RunCheckpoint(), resume="last")
    assert frames(folder / "samples/training.gif") == 4, "of iterations 0, 2, 3 and 5"


def steps(path):
    with path.open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def test_rows_of_another_run_are_not_mixed_with_those_of_a_new_one(again, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("step,loss/other\n1,1.0\n2,2.0\n3,3.0\n")
    callbacks = [PairedMetrics(num_samples=4, every_n_steps=9), RunCheckpoint(monitor=None)]
    again(3, *callbacks, model="pix2pix", logger=CSVMetrics(str(folder)), log_every_n_steps=2)
    assert steps(folder / "metrics.csv") == [0, 1, 3], "Lightning counts rows of losses from 0"
    again(2, RunCheckpoint(monitor=None), folder="bare", logger=CSVMetrics(str(folder)), log_every_n_steps=2)
    assert steps(folder / "metrics.csv") == [1], "without a measurement at iteration 0"


def test_callbacks_of_an_earlier_training_are_reset(again, tmp_path):
    measured = Given((9.0, 1.0, 1.5, 8.0, 5.0, 6.0))
    callbacks = [StopOnPlateau(2, "metric/given"), Watch(1), Throughput()]
    checkpoint = RunCheckpoint(monitor="metric/given")
    assert again(2, measured, *callbacks, checkpoint, folder="first", log_every_n_steps=1).global_step == 2
    measured.num_samples = 2  # of which no warning says anything: nothing is compared with another run
    assert again(2, measured, *callbacks, checkpoint, folder="second", log_every_n_steps=1).global_step == 2
    best = {"metric": "metric/given", "top": {1: 5.0}, "untrained_value": 8.0}
    assert checkpoint.state_dict() == {**best, "protocol": measured.protocol, "recent": []}
    assert torch.load(tmp_path / "second/checkpoints/best.ckpt", weights_only=True)["global_step"] == 1
    assert (callbacks[0].best_value, callbacks[0].waited) == (5.0, 1)
    assert [look.iteration for look in callbacks[1].looks] == [1, 2]
    assert callbacks[2]._all_images == 16
