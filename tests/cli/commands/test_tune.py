"""`lit-gans tune`: what it chooses from given speeds, and a file that `lit-gans train` takes."""

import pytest
import yaml

from lit_gans.cli.commands.tune import Search
from lit_gans.common.errors import RefusedInput

CONFIG = {
    "model": {"channels_last": True, "compile": False},
    "data": {"batch_size": 64, "placement": "auto"},
    "trainer": {"precision": "32-true"},
}


def speed(config, threads, seconds):
    """Grows up to a batch of 256, is a little less at 512, where memory ends; bfloat16 is fast, one thread slow."""
    size = config["data"]["batch_size"]
    if size > 512:
        raise RuntimeError("out of memory\nat 1024")
    if config["data"]["placement"] == "memory":
        raise RefusedInput("no memory here.")
    images = min(size, 256) * (2.0 if config["trainer"]["precision"] == "bf16-mixed" else 1.0)
    images *= 0.97 if size == 512 else 1.0
    images *= 1.02 if config["model"]["compile"] else 1.0
    return images * threads


def test_the_largest_batch_without_a_loss_and_what_is_clearly_faster_are_chosen(capsys):
    search = Search(CONFIG, 1e6, speed)
    search.threads = 2
    search.run()
    assert search.found == {"data.batch_size": 512, "trainer.precision": "bf16-mixed"}
    said = capsys.readouterr().out
    assert "1024: out of memory at 1024" in said
    assert "trainer.max_steps counts iterations: the same number now uses 8 times as many images" in said
    assert "precision  bf16-mixed: 2.00 to 2.00 times as fast, chosen" in said
    assert "compile    True: 1.02 to 1.02 times as fast, not chosen" in said
    assert "placement  memory: does not work here: no memory here." in said
    assert "threads    1: 0.50 to 0.50 times as fast, not chosen" in said


def test_trials_that_would_take_longer_than_the_time_left_are_not_begun(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("lit_gans.cli.commands.tune.time.monotonic", lambda: clock[0])

    def slow(config, threads, seconds):
        clock[0] += 5.0 if config["data"]["batch_size"] == 64 else 9.0
        return 64.0

    Search(CONFIG, 60.0, slow).run()
    assert clock[0] == 5 + 9 + 4 * 9, "two batches in a third of the time, one comparison of two rounds"
    said = capsys.readouterr().out
    assert "128: 64 images/s); 256: not tried, because the time is over" in said
    assert "channels_last False: not tried, since it takes 36 s and only 10 s are left" in said
    assert "compile    True: not tried" in said


def test_a_first_batch_that_does_not_fit_is_refused():
    def never(config, threads, seconds):
        raise RuntimeError("out of memory")

    with pytest.raises(RefusedInput, match="batch_size=64 does not work here: out of memory"):
        Search(CONFIG, 1e6, never).run()


@pytest.mark.runs
def test_the_file_trains(ran, tmp_path):
    small = ["model.generator_width=2", "model.discriminator_width=2", "data.image_size=16"]
    chosen = ["model=gan", "data=digits", *small, "trainer.accelerator=cpu", "minutes=0.005"]
    chosen += ["seed=3", "precision=bf16", "strategy=ddp", "optimizer@model.generator_optimizer=sgd"]
    said = ran("tune", *chosen)
    content = yaml.safe_load((tmp_path / "tuned/experiment/tuned_gan_digits.yaml").read_text())
    assert content["model"]["generator_width"] == 2
    assert content["data"]["batch_size"] >= 64
    assert {"override /model": "gan"} in content["defaults"]
    assert "next:    lit-gans train experiment=tuned/experiment/tuned_gan_digits.yaml" in said
    said = ran("train", "experiment=tuned/experiment/tuned_gan_digits.yaml", "--cfg", "job")
    assert f"batch_size: {content['data']['batch_size']}" in said
    for kept in ("seed: 3\n", "precision: bf16-mixed\n", "bucket_cap_mb:", "momentum:"):  # ddp's and SGD's
        assert kept in said, kept
