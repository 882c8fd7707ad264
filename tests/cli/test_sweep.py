import csv
import shutil
import signal
import warnings

import numpy as np
import pytest
import yaml
from PIL import Image

from lit_gans.callbacks import EMA
from lit_gans.cli.outcome import SweepRun, write_summary
from lit_gans.models.gan import GAN
from tests.commands import TINY


def run(folder, overrides, values, color=None, size=(40, 40), is_finished=True):
    """A run whose grid, if any, has one color."""
    grid = folder / "000010.png"
    if color:
        folder.mkdir(parents=True)
        Image.new("RGB", size, color).save(grid)
    return SweepRun(overrides.split(), values, folder, grid, is_finished)


def cells(lines):
    """The rows of a table, the separating one left out."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return rows[0], rows[1:]


def test_the_table_has_what_differs_and_what_was_measured(tmp_path):
    runs = [
        run(tmp_path / "0", "experiment=dcgan_digits seed=1 trainer.max_steps=9", {"fid": 33.351234, "seconds": 1}),
        run(tmp_path / "1", "experiment=gan_ring seed=2 trainer.max_steps=9", {"modes": 8.0, "seconds": 12345.6}),
    ]
    lines = write_summary(runs, tmp_path / "sweep")
    head, rows = cells(lines)
    assert head == ["run", "fid", "seconds", "modes"]
    assert rows == [["dcgan_digits seed=1", "33.35", "1", ""], ["gan_ring seed=2", "", "12346", "8"]]
    assert (tmp_path / "sweep" / "table.md").read_text() == "\n".join(lines) + "\n"
    assert not (tmp_path / "sweep" / "samples.png").exists(), "there are no grids"


def test_seeds_that_are_finished_have_a_mean_and_a_standard_deviation(tmp_path):
    values = {"dcgan_digits": (40.0, 50.0, 60.0), "gan_digits": (7.0, None, 1755.0)}  # the last one of no training
    runs = [
        run(
            tmp_path / f"{name}{seed}",
            f"experiment={name} seed={seed}",
            {} if value is None else {"fid": value},
            is_finished=value not in (None, 1755.0),
        )
        for name, own in values.items()
        for seed, value in enumerate(own)
    ]

    def means(runs):
        lines = write_summary(runs, tmp_path)
        return cells(lines[lines.index("mean ± standard deviation over the seeds, of the last iteration") :])

    assert means(runs) == (["run", "seeds", "fid"], [["dcgan_digits", "3", "50 ± 10"], ["gan_digits", "1", "7"]])
    assert means(runs[:3])[1] == [["all", "3", "50 ± 10"]], "nothing else differs"
    rows = [line for line in write_summary(runs, tmp_path) if "not finished" in line]
    assert [row.split("|")[1].strip() for row in rows] == [f"gan_digits seed={n} (not finished)" for n in (1, 2)]
    assert not any("±" in line for line in write_summary(runs[::3], tmp_path)), "one seed each"


def test_the_image_of_a_sweep_has_all_grids_side_by_side(tmp_path):
    runs = [
        run(tmp_path / "0", "seed=0", {}, "red", (40, 40)),
        run(tmp_path / "1", "seed=1", {}),
        run(tmp_path / "2", "seed=2", {}, "blue", (80, 40)),
    ]
    lines = write_summary(runs, tmp_path)
    assert lines[-1] == f"side by side: {tmp_path / 'samples.png'}"
    assert "side by side" not in (tmp_path / "table.md").read_text()
    with Image.open(tmp_path / "samples.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    middle, width = pixels[len(pixels) // 2], pixels.shape[1]
    assert middle[[width // 4, 3 * width // 4]].tolist() == [[255, 0, 0], [0, 0, 255]]
    for half in np.split(pixels, [width // 2], axis=1):
        assert (half < 128).all(axis=-1).any(), "the name of the run is above its grid"


@pytest.mark.runs
def test_a_continued_sweep_has_the_rows_of_its_finished_runs(train, tmp_path):
    points = ["model=gan", "data=ring", "data.num_points=200", "data.batch_size=50", "metrics=modes"]
    small = ["metrics.num_samples=100", "trainer.accelerator=cpu", "logger=csv", "trainer.max_steps=2"]
    sweep = [*points, *small, "-m", "hydra.sweep.dir=S"]
    assert train(*sweep, "seed=0,1") == 0
    first = (tmp_path / "S/table.md").read_text().splitlines()
    assert train(*sweep, "seed=0,1,2", "resume=auto") == 0
    assert train.out.count("Nothing was trained") == 2
    lines = (tmp_path / "S/table.md").read_text().splitlines()
    (head, before), (again, rows) = (cells(part[: part.index("")]) for part in (first, lines))
    measured = ["run", "modes_covered", "high_quality", "kl_uniform"]
    assert [[row[again.index(name)] for name in measured] for row in rows[:2]] == [
        [row[head.index(name)] for name in measured] for row in before
    ]
    assert [row[0] for row in rows] == ["seed=0", "seed=1", "seed=2"]
    means = lines[lines.index("mean ± standard deviation over the seeds, of the last iteration") :]
    assert cells(means)[1][0][:2] == ["all", "3"]


@pytest.mark.runs
@pytest.mark.parametrize("key", ["model.latent_dim", "data.batch_size", "callbacks.ema.decay"])
def test_a_continued_sweep_does_not_resume_the_run_of_another_job(train, tmp_path, key):
    """Its table had the name of this job beside the values of the other."""
    values = {"model.latent_dim": "56", "data.batch_size": ("40", "50"), "callbacks.ema.decay": ("0.5", "0.6")}[key]
    points = ["model=gan", "data=ring", "metrics=none", "logger=csv", "trainer.accelerator=cpu"]
    sweep = [*points, "-m", "hydra.sweep.dir=S"]
    assert train(*sweep, f"{key}={values[0]},{values[1]}", "trainer.max_steps=1") == 0, train.err
    assert train(*sweep, f"{key}={values[1]},{values[0]}", "trainer.max_steps=2", "resume=auto") == 2
    assert train.err.count("is of another job") == 2
    assert f"S/0/checkpoints/last.ckpt, at iteration 1, is of another job: it was trained with {key}=" in train.err
    assert train(*sweep, f"{key}={values[0]},{values[1]}", "trainer.max_steps=2", "resume=auto") == 0, train.err


@pytest.mark.runs
def test_each_job_is_measured_as_it_would_be_alone(train, tmp_path):
    small = ["model=gan", "logger=none", "trainer.accelerator=cpu", "trainer.max_steps=1", "metrics.num_samples=100"]
    assert train(*small, "-m", "hydra.sweep.dir=S", "data=digits,ring") == 0, train.err
    configs = [yaml.safe_load((tmp_path / f"S/{number}/config.yaml").read_text()) for number in range(2)]
    classes = [config["metrics"]["_target_"].rpartition(".")[2] for config in configs]
    assert classes == ["GenerativeMetrics", "ModeMetrics"]


@pytest.mark.runs
def test_a_sweep_ends_with_its_table_and_image(train, tmp_path, monkeypatch):
    def loss(self, fake, batch):
        self.log("gradient_size", float(self.global_step))
        self.log("metric/own", 10.0 + self.latent_dim)
        return generator_loss(self, fake, batch)

    generator_loss = GAN.generator_loss
    monkeypatch.setattr(GAN, "generator_loss", loss)
    points = ["model=gan", "data=ring", "data.num_points=200", "data.batch_size=50", "metrics=modes"]
    small = ["metrics.num_samples=100", "trainer.accelerator=cpu", "trainer.log_every_n_steps=1", "logger=csv"]
    assert train(*points, *small, "trainer.max_steps=3", "-m", "model.latent_dim=5,6") == 0
    folder = tmp_path / "outputs" / "sweeps" / "version_0"
    table = (folder / "table.md").read_text()
    assert table in train.out
    assert "side by side: outputs/sweeps/version_0/samples.png" in train.out
    assert train.out.index("Done: 3 iterations in outputs/sweeps/version_0/1") < train.out.index(table)
    head, rows = cells(table.splitlines())
    own = {"own": ["15", "16"], "gradient_size": ["2", "2"]}  # what a GAN of one's own logs
    assert set(head) == {"run", "modes_covered", "high_quality", "kl_uniform", "images/s", "seconds", *own}
    assert {name: [row[head.index(name)] for row in rows] for name in own} == own
    assert [row[0] for row in rows] == ["model.latent_dim=5", "model.latent_dim=6"]
    for number, row in enumerate(rows):
        with (folder / str(number) / "metrics.csv").open() as file:
            last = [line for line in csv.DictReader(file) if line["metric/high_quality"]][-1]
        assert float(row[head.index("high_quality")]) == pytest.approx(float(last["metric/high_quality"]), rel=1e-3)
        assert min(float(row[head.index(name)]) for name in ("images/s", "seconds")) > 0
    assert (folder / "samples.png").is_file()


@pytest.mark.runs
def test_a_diverged_run_stays_in_the_table_and_the_sweep_continues(train, tmp_path):
    tiny = ["model=gan", "data=ring", "metrics=none", "logger=none", "data.num_points=500", "data.batch_size=50"]
    sgd = [f"optimizer@model.{name}_optimizer=sgd" for name in ("generator", "discriminator")]
    decays = "model.generator_optimizer.weight_decay=1e6,0"  # weights grow ten thousandfold in a step
    settings = ["model.generator_optimizer.lr=0.01", decays, "trainer.max_steps=15", "trainer.accelerator=cpu"]
    assert train("-m", *tiny, *sgd, *settings) == 1
    assert "not finite since iteration" in train.err
    (table,) = tmp_path.glob("outputs/sweeps/version_0/table.md")
    assert len(table.read_text().splitlines()) == 2 + 2
    assert table.read_text().count("(not finished)") == 1


@pytest.mark.runs
def test_a_signal_ends_a_sweep_whose_folder_is_deleted(train, tmp_path, monkeypatch):
    """The checkpoint failed to be written, and the next run began."""
    update, seeds = EMA.on_train_batch_end, []

    def update_then_signal(self, trainer, module, *arguments):
        update(self, trainer, module, *arguments)
        if trainer.global_step != 1:
            return
        seeds.append(module.seed)
        shutil.rmtree(tmp_path / "outputs")
        (tmp_path / "outputs").touch()  # nothing can be written there
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(EMA, "on_train_batch_end", update_then_signal)
    assert train("-m", *TINY, "seed=0,1,2", "trainer.max_steps=3") == 128 + signal.SIGTERM
    assert seeds == [0]
    assert "cannot be written" in train.err


@pytest.fixture
def optuna(monkeypatch):
    """Optuna's sweeper, for a GAN whose value is best at 6 latents and which diverges at 5; what was trained.

    The seed chooses 5, 4 and 6. The grid of the package fails in some orders, which it draws at random.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own, and of the database that it does not use
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper._impl")
    trained, generator_loss = [], GAN.generator_loss

    def loss(self, fake, batch):
        trained.append(self.latent_dim)
        self.log("own", 10.0 - abs(6 - self.latent_dim) - self.global_step)
        return generator_loss(self, fake, batch) + (float("nan") if self.latent_dim == 5 else 0.0)

    monkeypatch.setattr(GAN, "generator_loss", loss)
    points = ["model=gan", "data=ring", "data.num_points=200", "data.batch_size=50", "metrics=none", "logger=none"]
    small = ["trainer.accelerator=cpu", "trainer.max_steps=2", "model.latent_dim=choice(4,5,6)"]
    sweeper = [
        "hydra/sweeper=optuna",
        "hydra.sweeper.sampler.seed=1",
        "hydra.sweeper.n_trials=3",
        "hydra.sweeper.n_jobs=1",
    ]
    return ["-m", *points, *small, *sweeper], trained


OWN = ["callbacks.checkpoint.monitor=own", "callbacks.checkpoint.mode=max"]


@pytest.mark.runs
def test_a_sweeper_receives_the_best_value_and_continues_after_a_failed_job(train, tmp_path, optuna):
    arguments, trained = optuna
    assert train(*arguments, *OWN, "hydra.sweeper.direction=maximize") == 1, train.err
    assert {*trained} == {4, 5, 6}
    assert "not finite" in train.err
    found = yaml.safe_load((tmp_path / "outputs/sweeps/version_0/optimization_results.yaml").read_text())
    assert found == {"name": "optuna", "best_params": {"model.latent_dim": 6}, "best_value": 10.0}
    assert "best: model.latent_dim=6, with 10 (outputs/sweeps/version_0/optimization_results.yaml)" in train.out


@pytest.mark.runs
def test_a_sweep_of_which_every_job_fails_says_so(train, tmp_path, optuna):
    arguments, trained = optuna
    given = [*OWN, "hydra.sweeper.direction=maximize", "model.latent_dim=choice(5)", "hydra.sweeper.n_trials=2"]
    assert train(*arguments, *given) == 1
    assert {*trained} == {5}
    assert train.err.endswith("lit-gans: every job of the sweep has failed, so that none is the best.\n")
    assert "No trials" not in train.err


@pytest.mark.runs
def test_a_sweeper_without_a_score_or_in_the_wrong_direction_ends_before_the_first_iteration(train, optuna):
    arguments, trained = optuna
    assert train(*arguments) == 2
    assert "hydra/sweeper optimizes a score, but this training has none" in train.err
    assert train(*arguments, *OWN) == 2
    assert (
        "hydra/sweeper searches for the min of own, but its max is best: use hydra.sweeper.direction=maximize"
        in train.err
    )
    assert not trained
    assert sum(line.startswith("lit-gans:") for line in train.err.splitlines()) == 1, "said once"
