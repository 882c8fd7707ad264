"""`lit-gans tune`: what it chooses from given speeds, and a file that `lit-gans train` takes."""

import pytest
import yaml

from lit_gans.cli.train_arguments import arguments_of_job, experiment_file
from lit_gans.cli.tune import _one_process, _refuse_foreign
from lit_gans.cli.tuning import Tuning
from lit_gans.common.errors import RefusedInput
from lit_gans.config.overrides import key_of

CONFIG = {
    "model": {"channels_last": True, "compile": False},
    "data": {"batch_size": 64, "placement": "auto"},
    "trainer": {"precision": "32-true"},
}


class Given(Tuning):
    """A search on a machine whose speeds are a function of the configuration."""

    def __init__(self, speed, seconds=1e6):
        self.speed = speed
        super().__init__(CONFIG, seconds)

    def _speed(self, config, threads=None):
        return self.speed(config, threads or self.threads)


def speed(config, threads):
    """Grows up to a batch of 256, is a little less at 512, where memory ends; bfloat16 is fast, one thread slow."""
    size = config["data"]["batch_size"]
    if size > 512:
        raise RuntimeError("out of memory\nat 1024")
    images = min(size, 256) * (2.0 if config["trainer"]["precision"] == "bf16-mixed" else 1.0)
    images *= 0.97 if size == 512 else 1.0
    images *= 1.02 if config["model"]["compile"] else 1.0  # too little to be chosen
    if config["data"]["placement"] == "memory":
        raise RefusedInput("no memory here.")
    return images * threads


def test_the_largest_batch_without_a_loss_and_what_is_clearly_faster_are_chosen(capsys):
    tuning = Given(speed)
    tuning.default_threads = tuning.threads = 2
    tuning.run()
    assert tuning.found == {"data.batch_size": 512, "trainer.precision": "bf16-mixed"}
    said = capsys.readouterr().out
    assert "1024: out of memory at 1024" in said
    assert "trainer.max_steps counts iterations: as many see 8 times as many images" in said
    assert "precision  bf16-mixed: 2.00 to 2.00 times as fast, chosen" in said
    assert "compile    True: 1.02 to 1.02 times as fast, not chosen" in said
    assert "placement  memory: does not work here: no memory here." in said
    assert "threads    1: 0.50 to 0.50 times as fast, not chosen" in said


def test_what_there_is_no_time_for_is_said(capsys):
    Given(speed, seconds=30.0).run()
    assert "compile    True: not tried" in capsys.readouterr().out


def test_trials_that_would_take_longer_than_the_time_left_are_not_begun(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("lit_gans.cli.tuning.time.monotonic", lambda: clock[0])

    def slow(config, threads):
        clock[0] += 5.0 if config["data"]["batch_size"] == 64 else 9.0
        return 64.0

    Given(slow, seconds=60.0).run()
    assert clock[0] == 5 + 9 + 4 * 9, "two batches in a third of the time, one comparison of two rounds"
    said = capsys.readouterr().out
    assert "128: 64 images/s); 256: the time for it is over" in said
    assert "channels_last False: not tried, which takes 36 s, and 10 s are left" in said


def test_a_first_batch_that_does_not_fit_is_refused():
    def never(config, threads):
        raise RuntimeError("out of memory")

    with pytest.raises(RefusedInput, match="batch_size=64 does not fit: out of memory; begin with a smaller one"):
        Given(never).run()


def test_the_file_trains(command, tmp_path):
    small = ["model.generator_width=2", "model.discriminator_width=2", "data.image_size=16"]
    chosen = ["model=gan", "data=digits", *small, "trainer.accelerator=cpu", "minutes=0.005"]
    chosen += ["seed=3", "precision=bf16", "strategy=ddp", "optimizer@model.generator_optimizer=sgd"]
    code, said = command("tune", *chosen)[:2]
    assert code == 0, said
    assert _one_process({"devices": "auto"}) == {"devices": 1}
    file = tmp_path / "tuned/experiment/tuned_gan_digits.yaml"
    content = yaml.safe_load(file.read_text())
    _refuse_foreign(file)  # its own file is written again
    assert content["model"]["generator_width"] == 2
    assert content["data"]["batch_size"] >= 64
    assert {"override /model": "gan"} in content["defaults"]
    path = str(file.relative_to(tmp_path))
    code, said, errors = command("train", f"experiment={path}", "--cfg", "job")
    assert code == 0, errors
    assert f"batch_size: {content['data']['batch_size']}" in said
    for kept in ("seed: 3\n", "precision: bf16-mixed\n", "bucket_cap_mb:", "momentum:"):  # ddp's and SGD's
        assert kept in said, kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["minutes=soon"], "minutes=soon must be a number greater than 0"),
        (["minutes=0"], "minutes=0 must be"),
        (["output=fast.yaml"], "a YAML file in a folder named experiment"),
        (["model=dcgam"], "dcgam"),
        (["trainer.devices=2", "strategy=ddp"], "trainer.devices=2: tune measures one process"),
        (["trainer.num_nodes=2"], "trainer.num_nodes=2: tune measures one process"),
        (["output=mine/experiment/own.yaml"], "own.yaml: the file exists, and tune has not written it"),
    ],
)
def test_wrong_lines_are_refused_in_a_sentence(command, arguments, words, tmp_path):
    (tmp_path / "mine/experiment").mkdir(parents=True)
    (tmp_path / "mine/experiment/own.yaml").write_text("# @package _global_\nseed: 3\n")
    code, _, errors = command("tune", *arguments)
    assert code == 2
    assert words in errors


def test_one_of_several_processes_does_not_search(command, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, errors = command("tune", "model=gan")
    assert (code, "WORLD_SIZE=2: tune measures one process" in errors) == (2, True)


def test_the_path_of_an_experiment_becomes_its_name_and_a_folder(tmp_path):
    file = tmp_path / "a b/experiment/fast.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    found = experiment_file(["model.compile=true", f"experiment={file}", "hydra.searchpath=[file://other]"])
    assert found[0] == "model.compile=true"
    assert found[1] == "experiment=fast"
    assert found[2] == f"hydra.searchpath=['file://{tmp_path}/a b',file://other]"
    assert [key_of(argument) for argument in found] == ["model.compile", "experiment", "hydra.searchpath"]
    assert experiment_file(["experiment=dcgan_digits"]) == ["experiment=dcgan_digits"]
    file.with_name("gan_digits.yaml").touch()
    with pytest.raises(RefusedInput, match="there is an experiment=gan_digits of lit_gans; rename the file"):
        experiment_file([f"experiment={file.parent}/gan_digits.yaml"])
    with pytest.raises(RefusedInput, match="in a folder named experiment"):
        experiment_file([f"experiment={tmp_path}/none.yaml"])


def test_a_stopped_job_is_started_again_with_what_was_typed():
    typed = ["experiment=mine/experiment/fast.yaml", "hydra.searchpath=[file://other]", "seed=0"]
    job = ["experiment=fast", "seed=0"]
    assert arguments_of_job(typed, job) == typed
    assert arguments_of_job([*typed[:2], "seed=0,1", "-m", "hydra.sweep.dir=all"], job) == typed
