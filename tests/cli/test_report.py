"""The report at the end of a run names only files that exist."""

from lit_gans.callbacks import Checkpoint, Samples
from lit_gans.cli.report import report


def test_only_existing_files_are_named(tiny_gan, random_images, fit, tmp_path, capsys):
    callbacks = [Samples(num=4), Checkpoint()]
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


def test_a_stopped_run_continues_with_the_printed_line(tiny_gan, random_images, fit, capsys, monkeypatch):
    checkpoint = Checkpoint()
    trainer = fit(tiny_gan(), random_images(), max_steps=1, callbacks=[checkpoint], enable_checkpointing=True)
    checkpoint._signals.received = 2
    assert report(trainer, ["model=dcgan", "'data.root=my photos'", "resume=auto"]) == 128 + 2
    assert "next        lit-gans train model=dcgan 'data.root=my photos' resume=" in capsys.readouterr().out
    monkeypatch.setenv("LIT_GANS_IMPORT", "mine")
    report(trainer, ["model=my_gan"])
    assert "next        LIT_GANS_IMPORT=mine lit-gans train model=my_gan resume=" in capsys.readouterr().out
