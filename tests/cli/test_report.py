from tests.commands import TINY


def test_a_report_of_a_run_with_classes(train, ran, tmp_path):
    overrides = ["model.num_classes=10", "trainer.max_steps=2", "callbacks.samples.every_n_steps=1"]
    assert train(*TINY, *overrides, "hydra.run.dir=run") == 0
    out = ran("report", "run=run", "num=9")
    assert out.strip().endswith("run/report.html")
    text = (tmp_path / "run/report.html").read_text()
    for part in ("Samples by class", "Over time", "iteration 2", "Nearest real images", "lit-gans demo checkpoint=run"):
        assert part in text
    ran("report", "run=run", "neighbors=false", "output=other.html")
    assert "Nearest real images" not in (tmp_path / "other.html").read_text()
