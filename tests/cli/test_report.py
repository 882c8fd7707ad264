from tests.commands import TINY


def test_a_report_of_a_run_with_classes(train, command, tmp_path):
    overrides = ["model.num_classes=10", "trainer.max_steps=2", "callbacks.samples.every_n_steps=1"]
    assert train(*TINY, *overrides, "hydra.run.dir=run") == 0
    code, out, err = command("report", "run=run", "num=9")
    assert code == 0, err
    assert out.strip().endswith("run/report.html")
    text = (tmp_path / "run/report.html").read_text()
    for part in ("Samples by class", "Over time", "iteration 2", "Nearest real images", "lit-gans demo checkpoint=run"):
        assert part in text
    code, out, _ = command("report", "run=run", "neighbors=false", "output=other.html")
    assert "Nearest real images" not in (tmp_path / "other.html").read_text()


def test_a_folder_that_is_no_run_is_refused(command, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = command("report", "run=empty")
    assert (code, "there is no config.yaml in it: give the folder of a run" in err) == (2, True)
