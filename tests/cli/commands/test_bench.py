"""`lit-gans bench`: what it measures, what it lists instead, and what it writes. No timing is asserted."""

import json

import pytest

TINY = ["device=cpu", "batch_sizes=[4]", "image_size=16", "width=4", "seconds=0.01"]


@pytest.mark.runs
def test_cells_are_measured_written_and_shown(ran, tmp_path):
    out = ran("bench", "gans=[dcgan,wgan_gp]", "modes=[fp32,bf16,fp16]", "output=new/a.json", *TINY)
    result = json.loads((tmp_path / "new/a.json").read_text())
    measured = [(cell["gan"], cell["mode"]) for cell in result["cells"]]
    assert measured == [(gan, mode) for gan in ("dcgan", "wgan_gp") for mode in ("fp32", "bf16")]
    for cell in result["cells"]:
        images = 4 * {"dcgan": 1, "wgan_gp": 5}[cell["gan"]]
        assert cell["images_per_second"] == pytest.approx(images / cell["seconds"])
        assert cell["peak_memory"] is None or cell["peak_memory"] > 2**20
    assert set(result["failed"]) == {"dcgan fp16 4", "wgan_gp fp16 4"}, "and the rest is measured"
    table = (tmp_path / "new/a.md").read_text()
    assert table.splitlines()[0].replace("|", "").split() == ["GAN", "batch", "strategy", "fp32", "bf16"]
    assert table in out
    assert "- failed: dcgan fp16 4: mode fp16 needs a CUDA device." in table


def test_small_batches_come_first_and_what_there_is_no_time_for_is_listed(ran, tmp_path):
    some = ["gans=[gan,dcgan]", "modes=[compile,bf16]", "batch_sizes=[4,8]", "minutes=0.00001", "output=a.json"]
    ran("bench", "device=cpu", *some)
    result = json.loads((tmp_path / "a.json").read_text())
    order = ["gan bf16 4", "dcgan bf16 4", "gan bf16 8", "dcgan bf16 8"]
    assert result["not_run"] == [*order, *(name.replace("bf16", "compile") for name in order)]
    assert "- not run, no time left: gan bf16 4" in (tmp_path / "a.md").read_text()


@pytest.mark.slow
def test_several_processes_train_together(ran, tmp_path):
    some = ["gans=[gan]", "modes=[fp32]", "strategies=[ddp]", "processes=2", "output=a.json"]
    ran("bench", *some, *TINY)
    (cell,) = json.loads((tmp_path / "a.json").read_text())["cells"]
    assert cell["images_per_second"] == pytest.approx(4 * 2 / cell["seconds"])
