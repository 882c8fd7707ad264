"""What resuming promises beside the numbers: a refused run leaves nothing, a finished one is not trained again."""

import shutil
from pathlib import Path

import pytest
import torch

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.cli import main as cli
from tests.commands import TINY

RUN = Path("outputs/dcgan_digits/version_0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder `outputs` of a run of two iterations with every logger."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.run(["train", *TINY, "logger=default", "trainer.max_steps=2"]) == 0
    return folder / "outputs"


@pytest.fixture
def finished(trained, train):
    """A copy of the run in the current folder, and what is in it."""
    shutil.copytree(trained, "outputs")
    return contents()


def contents():
    """The files of the run by path; TensorBoard begins one at every start."""
    files = (path for path in Path("outputs").rglob("*") if path.is_file() and "tfevents" not in path.name)
    return {path: path.read_bytes() for path in files}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("data.seed=1", "data with seed=0"),
        ("model.generator_width=8", "different architecture"),
        ("optimizer@model.discriminator_optimizer=sgd", "has discriminator_optimizer.name=Adam, but this"),
    ],
)
def test_a_refused_resume_leaves_the_run_as_it_was(train, finished, other, sentence):
    assert train(*TINY, "logger=default", "trainer.max_steps=4", "resume=auto", other) == 2
    assert sentence in train.err
    assert contents() == finished
    assert [*Path("outputs/dcgan_digits").iterdir()] == [RUN]


def test_a_run_with_all_of_its_iterations_is_not_trained_and_says_so(train, finished):
    assert train(*TINY, "logger=default", "trainer.max_steps=2", "resume=auto") == 0
    assert f"Nothing was trained: {RUN}/checkpoints/last.ckpt is at iteration 2, and trainer.max_steps=2" in train.out
    assert contents() == finished


@pytest.mark.runs
def test_a_run_that_its_time_has_ended_is_not_trained_and_says_so(train):
    """Lightning's timer resumes, too: no iteration was trained, and the command said "Done"."""
    line = [*TINY, "trainer.max_time=00:00:00:01", "resume=auto"]
    assert train(*line) == 0
    reached = read_checkpoint(RUN)["global_step"]
    assert train(*line) == 0
    assert f"is at iteration {reached}, and trainer.max_time=00:00:00:01. Use a larger trainer.max_time" in train.out
    assert "Done" not in train.out
    assert train(*TINY, "trainer.max_time=00:00:10:00", f"trainer.max_steps={reached + 1}", "resume=auto") == 0
    assert f"Done: {reached + 1} iterations" in train.out


@pytest.mark.parametrize(("other", "sentence"), [("seed=5", "seed=0 instead of 5"), ("data.channels=3", "channels=")])
def test_a_run_of_other_settings_with_all_of_its_iterations_is_refused(train, finished, other, sentence):
    assert train(*TINY, "logger=default", "trainer.max_steps=2", "resume=auto", other) == 2
    assert "nothing is left to train, but the run was trained with" in train.err
    assert sentence in train.err
    assert contents() == finished


def test_files_beside_a_checkpoint_in_a_folder_that_is_no_run_stay(train, finished):
    """A folder named checkpoints does not make its parent the folder of a run."""
    for name in ("config.yaml", "run.yaml", "metrics.csv"):
        Path(name).write_text("mine: 1\n")
    Path("checkpoints").mkdir()
    shutil.copy(RUN / "checkpoints/last.ckpt", "checkpoints/gan.ckpt")
    assert train(*TINY, "logger=csv", "trainer.max_steps=3", "resume=checkpoints/gan.ckpt") == 0
    assert {Path(name).read_text() for name in ("config.yaml", "run.yaml", "metrics.csv")} == {"mine: 1\n"}
    assert read_checkpoint(RUN.with_name("version_1") / "checkpoints/last.ckpt")["global_step"] == 3


@pytest.mark.parametrize("resume", ["auto", str(RUN)])
def test_auto_and_the_folder_of_the_run_are_the_same(train, finished, resume):
    assert train(*TINY, "logger=default", "trainer.max_steps=3", f"resume={resume}") == 0
    assert torch.load(RUN / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 3
    assert [*Path("outputs/dcgan_digits").iterdir()] == [RUN]


@pytest.mark.runs
def test_auto_does_not_take_the_run_of_another_gan(train, finished):
    other = "experiment=dcgan_digits", "model=sngan", "trainer.max_steps=1", "resume=auto"
    assert train(*TINY, "logger=default", *other) == 0
    assert (Path("outputs/dcgan_digits_sngan/version_0") / "checkpoints/last.ckpt").is_file()
    assert finished.items() <= contents().items()


@pytest.mark.runs
def test_an_invalid_run_of_a_sweep_does_not_end_the_other_runs(train):
    assert train(*TINY, "-m", "model.n_critic=0,1", "trainer.max_steps=1") == 2
    assert "n_critic=0 must be at least 1" in train.err
    assert [path.parent.name for path in Path().glob("outputs/sweeps/version_0/*/config.yaml")] == ["1"]


@pytest.mark.runs
def test_a_damaged_last_checkpoint_costs_only_the_iterations_since_the_best(train):
    """It was refused, while a good checkpoint lay beside it."""
    few = ["metrics=digits", "metrics.num_samples=40", "metrics.batch_size=20", "metrics.every_n_steps=2"]
    few += ["callbacks.checkpoint.mode=max"]  # the first is the best: the FID falls
    assert train(*TINY, *few, "trainer.max_steps=5") == 0
    uninterrupted = torch.load(RUN / "checkpoints/last.ckpt", weights_only=True)
    best = torch.load(RUN / "checkpoints/best.ckpt", weights_only=True)["global_step"]
    last = RUN / "checkpoints/last.ckpt"
    last.write_bytes(last.read_bytes()[:30_000])
    assert train(*TINY, *few, "trainer.max_steps=5", f"resume={last}") == 2
    assert "last.ckpt cannot be read as a checkpoint: it was not written by torch, or it is truncated" in train.err
    assert train(*TINY, *few, "trainer.max_steps=5", "resume=auto") == 0
    assert f"best.ckpt at iteration {best} instead: iterations {best + 1} to" in train.err
    again = torch.load(last, weights_only=True)
    for key in ("global_step", "state_dict", "optimizer_states", "generator_ema"):
        torch.testing.assert_close(again[key], uninterrupted[key], rtol=0, atol=0)


def test_a_checkpoint_of_other_optimizers_is_refused_before_the_first_step(train, finished):
    path = RUN / "checkpoints/last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["optimizer_states"].pop()
    torch.save(checkpoint, path)
    assert train(*TINY, "logger=default", "trainer.max_steps=4", "resume=auto") == 2
    assert "has the states of 1 optimizers, but this DCGAN has 2 (generator, discriminator)" in train.err


@pytest.fixture
def address(tmp_path):
    return f"memory://bucket/{tmp_path.name}/run"


@pytest.fixture
def line(address):
    """The arguments of a run that is copied to the address."""
    return [*TINY, "logger=default", f"hydra.run.dir={address}"]


@pytest.mark.runs
def test_a_run_at_a_url_continues_in_a_new_folder(train, line, address):
    assert train(*line, "trainer.max_steps=3") == 0
    assert train(*line, "trainer.max_steps=5", "resume=auto") == 0
    assert train(*TINY, "trainer.max_steps=5", "hydra.run.dir=whole") == 0
    last, whole = (read_checkpoint(Path(run)) for run in (RUN.with_name("version_1"), "whole"))
    assert last["global_step"] == 5
    torch.testing.assert_close(last["state_dict"], whole["state_dict"], rtol=0, atol=0)
    assert read_checkpoint(address)["global_step"] == 5
    losses = [Path(run, "metrics.csv").read_text() for run in (RUN.with_name("version_1"), "whole")]
    assert losses[0].count("\n") == losses[1].count("\n")


@pytest.mark.runs
def test_a_run_at_an_address_is_not_replaced_and_no_copy_stays_of_a_refused_one(train, line, address):
    assert train(*line, "trainer.max_steps=1") == 0
    for other in ("resume=none", f"resume={RUN}/checkpoints/last.ckpt"):
        assert train(*line, "trainer.max_steps=2", other) == 2
        assert f"hydra.run.dir={address} already has a run: use resume=auto to continue it" in train.err
    assert read_checkpoint(address)["global_step"] == 1
    assert train(*line, "trainer.max_steps=2", "resume=auto", "model.latent_dim=7") == 2
    assert [*RUN.parent.iterdir()] == [RUN], "which the next resume=auto would take"


def test_a_run_goes_to_an_address_from_a_local_checkpoint(train, finished, line, address):
    assert train(*line, "trainer.max_steps=3", f"resume={RUN}") == 0
    assert read_checkpoint(address)["global_step"] == 3
    assert contents().items() >= finished.items()
