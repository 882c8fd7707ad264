"""The report at the end of a run names only files that exist."""

import signal

from lightning.pytorch import Callback

from lit_gans.callbacks import GenerativeMetrics, RunCheckpoint, Samples
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.outcome import entry_of, report, write_summary
from lit_gans.metrics import InceptionScore
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.callbacks.test_early_stopping import Given


class Interrupted(Callback):
    """Receives Ctrl-C in an iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.iteration:
            signal.raise_signal(signal.SIGINT)


def test_only_existing_files_are_named(tiny_gan, random_images, fit, tmp_path, capsys):
    callbacks = [Samples(num=4), RunCheckpoint()]
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=callbacks, enable_checkpointing=True)
    assert report(trainer) == 0
    named = capsys.readouterr().out
    assert all(word in named for word in ("000001.png", "training.gif", "last.ckpt", "lit-gans sample"))
    for path in (*tmp_path.rglob("*.png"), *tmp_path.rglob("*.gif"), *tmp_path.rglob("*.ckpt")):
        path.unlink()
    assert report(trainer) == 0
    named = capsys.readouterr().out
    assert "Done: 1 iterations" in named
    assert not any(word in named for word in (".png", ".gif", ".ckpt", "lit-gans sample"))


def test_a_run_that_has_not_measured_a_new_score_yet_is_reported(tiny_gan, random_images, fit, capsys):
    """It was resumed with another first score, and stopped before the next measurement."""
    scores = GenerativeMetrics(DigitsExtractor(), scores={"inception_score": InceptionScore()}, num_samples=20)
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[scores])
    scores.headline = "metric/fid_digits"
    assert report(trainer) == 0
    assert "Done: 1 iterations" in capsys.readouterr().out


def test_a_stopped_run_continues_with_the_printed_line(tiny_gan, random_images, fit, capsys, monkeypatch):
    callbacks = [Interrupted(1), RunCheckpoint()]
    trainer = fit(tiny_gan(), random_images(), max_steps=2, callbacks=callbacks, enable_checkpointing=True)
    typed = ["model=dcgan", "data.root=my photos", "init_from=my run", "resume=auto"]  # resume= refuses init_from=
    assert report(trainer, typed) == 128 + 2
    assert "next        lit-gans train model=dcgan 'data.root=my photos' resume=" in capsys.readouterr().out
    assert not entry_of(trainer, [], 1.0).is_finished
    monkeypatch.setenv("LIT_GANS_IMPORT", "mine")
    report(trainer, ["model=my_gan"])
    assert "next        LIT_GANS_IMPORT=mine lit-gans train model=my_gan resume=" in capsys.readouterr().out


def test_a_signal_in_the_last_iteration_leaves_nothing_to_be_resumed(tiny_gan, random_images, fit, capsys):
    callbacks = [Interrupted(1), RunCheckpoint()]
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=callbacks, enable_checkpointing=True)
    assert report(trainer) == 128 + signal.SIGINT
    printed = capsys.readouterr().out
    assert "Done: 1 iterations" in printed
    assert "lit-gans sample" in printed
    assert "resume=" not in printed
    assert entry_of(trainer, [], 1.0).is_finished


def test_a_value_that_untrained_networks_had_already_is_not_called_the_best(
    tiny_gan, random_images, fit, capsys, tmp_path
):
    for values, beside in (((9.0, 3e-3, 4.0), ""), ((1e-3, 3e-3, 4.0), "; untrained: 0.001")):
        callbacks = [Given(values), RunCheckpoint(monitor="metric/given")]
        arguments = {"enable_checkpointing": True, "default_root_dir": tmp_path / str(values[0])}
        report(fit(tiny_gan(), random_images(), max_steps=2, callbacks=callbacks, **arguments))
        printed = capsys.readouterr().out
        assert f"best.ckpt (0.003 at iteration 1, the best of the trained networks{beside})\n" in printed
        assert ("best: given 0.003 at iteration 1" in printed) == (not beside)


def test_a_stopped_run_names_the_iteration_whose_weights_sample_loads(tiny_gan, random_images, fit, tmp_path, capsys):
    for others, name, step in (([Given((9.0, 3.0, 4.0))], "best", 1), ([], "last", 2)):
        callbacks = [*others, Interrupted(2), RunCheckpoint(monitor="metric/given" if others else "auto")]
        folder = tmp_path / name
        arguments = {"enable_checkpointing": True, "default_root_dir": folder}
        trainer = fit(tiny_gan(), random_images(), max_steps=3, callbacks=callbacks, **arguments)
        report(trainer)
        printed = capsys.readouterr().out
        assert f"sample checkpoint={folder} uses {name}.ckpt, iteration {step}" in printed
        assert find_checkpoint(folder).name == f"{name}.ckpt"
        assert "last.ckpt (iteration 2)" in printed


def test_a_stopped_run_at_a_url_continues_there(tiny_gan, random_images, fit, capsys):
    """It was refused: the URL already has a run."""
    callbacks = [Interrupted(1), RunCheckpoint()]
    trainer = fit(tiny_gan(), random_images(), max_steps=2, callbacks=callbacks, enable_checkpointing=True)
    report(trainer, ["model=dcgan", "hydra.run.dir=s3://bucket/my run", "resume=my run"])
    line = "next        lit-gans train model=dcgan 'hydra.run.dir=s3://bucket/my run' resume=auto\n"
    assert line in capsys.readouterr().out


def test_the_table_of_a_sweep_says_which_values_do_not_compare(tiny_gan, random_images, fit, tmp_path):
    runs = []
    for seed, num_samples in enumerate((1, 1, 2)):
        measured = [Given((9.0, 3.0)), Given((9.0, 3.0), headline="metric/other")]
        measured[0].num_samples = num_samples
        trainer = fit(tiny_gan(), random_images(), 1, callbacks=measured, default_root_dir=tmp_path / str(seed))
        runs.append(entry_of(trainer, [f"seed={seed}"], 1.0))
    assert "not comparable" not in "".join(write_summary(runs[:2], tmp_path))
    runs[1].protocols["metric/given"] = {}  # it was stopped before a measurement
    one = runs[0].protocols["metric/given"]
    runs[0].protocols["metric/given"] = one | {"scores": {"FrechetInceptionDistance": {}, "IntraFID": {}}}
    runs[2].protocols["metric/given"] |= {"scores": {"FrechetInceptionDistance": {}}, "labels_sha256": "0"}
    lines = write_summary(runs, tmp_path)
    said = "not comparable: metric/given of seed=0 and of seed=2 (num_fake: 1 and 2)"
    assert [line for line in lines if line.startswith("not comparable")] == [said]
    assert said in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert said in write_summary([runs[1], runs[0], runs[2]], tmp_path), "the first one was stopped"
