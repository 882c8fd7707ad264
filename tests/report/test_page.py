import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import torch
from PIL import Image

from lit_gans.data.sources.digits import Digits
from lit_gans.report.page import Run, page
from tests.commands import TINY
from tests.export.test_safetensors import content

SAMPLES = torch.rand(9, 3, 16, 16, generator=torch.Generator().manual_seed(0))
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def run(tmp_path):
    """The folder of a short run."""
    folder = tmp_path / "dcgan_photos/version_3"
    (folder / "samples").mkdir(parents=True)
    for step in range(0, 2100, 100):
        Image.new("RGB", (40, 40), (step // 10, 0, 0)).save(folder / "samples" / f"{step:06d}.png")
    (folder / "config.yaml").write_text("model: {_target_: lit_gans.DCGAN, lr: <b>1</b>}\ndata: {_target_: x.Folder}\n")
    rows = ["step,loss/generator,loss/discriminator,metric/fid_x,metric/is_spread_x"]
    rows += [f"{step},{1 + step},0.5,," for step in range(0, 2000, 10)] + ["1000,,,300.5,0.1", "2000,,,20.25,0.1"]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    protocols = {"metric/fid_x": {"real_halves": 7.125}, "metric/is_spread_x": {"num_fake": 9}}
    (folder / "protocol.json").write_text(json.dumps(protocols))
    return Run.read(folder)


class Links(HTMLParser):
    """Collects what a page loads and shows."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.shown = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.loaded += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]

    def handle_data(self, data):
        self.shown.append(data)


def test_a_page_needs_no_other_file_and_shows_what_the_folder_holds(run):
    real = iter([(SAMPLES[:4] * 255).byte()])
    text = page(run, SAMPLES, 1700, SAMPLES[:6], ("cat", "dog", "emu"), real, ("lit-gans sample checkpoint=a b",))
    links = Links(text)
    shown = " ".join(links.shown)
    assert links.loaded
    assert all(link.startswith("data:image/png;base64,") for link in links.loaded)
    assert len(links.loaded) == 1 + 1 + 8 + 8 + 8 * 3, "samples, classes, over time, 8 samples and their neighbors"
    for expected in (
        "dcgan_photos/version_3",
        "DCGAN",
        "one class: cat, dog, emu.",
        "Folder",
        "fid_x",
        "20.25",
        "iteration 2,000",
        "iteration 0",
    ):
        assert expected in shown
    assert "20.25 at iteration 2,000 (for comparison: 7.125 between two halves of the real images)" in shown
    assert "The networks are those of iteration 1,700." in shown
    assert "is_spread_x" not in shown
    assert "<b>1</b>" not in text, "settings are text"
    assert text.count("<svg") == 2, "losses and one score"
    assert "lit-gans sample checkpoint=a b" in shown


@pytest.mark.parametrize(
    ("last", "iterations"), [("1599,1.0,", 1600), ("1599,1.0,\n1600,,20.5", 1600), ("0,,9.5", 0), ("9,,\n8,1.0,", 9)]
)
def test_the_number_of_iterations_counts_the_last_one_with_a_loss(tmp_path, last, iterations):
    (tmp_path / "config.yaml").write_text("model: null\ndata: null\n")
    (tmp_path / "metrics.csv").write_text(f"step,loss/generator,metric/fid_x\n{last}\n")
    assert Run.read(tmp_path).iterations == iterations


def test_files_that_are_no_grids_and_damaged_rows_are_left_out(run):
    for name in ("1000000", "999999", "000100 (copy)"):
        shutil.copyfile(run.folder / "samples/000100.png", run.folder / f"samples/{name}.png")
    assert [path.stem for path in run.pictures(99)][-3:] == ["002000", "999999", "1000000"]
    with (run.folder / "metrics.csv").open("a") as file:
        file.write("2010,1.")
    assert Run.read(run.folder).rows == run.rows


def test_a_run_without_metrics_and_samples_has_a_page(tmp_path):
    (tmp_path / "config.yaml").write_text("model: null\ndata: null\n")
    text = page(Run.read(tmp_path), SAMPLES, 0)
    assert "Nearest" not in text
    assert "Over time" not in text


def test_the_halves_of_the_real_images_are_compared_with_a_fid_alone(run):
    protocols = {"metric/mifid_x": {"real_halves": 7.125}, "metric/fid_y": {}, "metric/fid_x": {"real_halves": 8.5}}
    (run.folder / "protocol.json").write_text(json.dumps(protocols))
    assert Run.read(run.folder).halves == {"metric/fid_x": 8.5}
    (run.folder / "protocol.json").write_text("{")
    assert Run.read(run.folder).halves == {}, "a damaged file"


@pytest.mark.runs
@pytest.mark.skipif(BROWSER is None, reason="no browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_in_a_browser(run, tmp_path, width):
    script = "<script>document.title = document.documentElement.scrollWidth + ' ' + innerWidth</script></body>"
    text = page(
        run,
        SAMPLES,
        1700,
        SAMPLES[:6],
        ("0", "1", "2"),
        iter([(SAMPLES[:4] * 255).byte()]),
        ("lit-gans train " + "x" * 300,),
    )
    (tmp_path / "page.html").write_text(text.replace("</body>", script))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    done = subprocess.run([*command, f"file://{tmp_path}/page.html"], capture_output=True, text=True, timeout=120)
    wide, window = map(int, re.search(r"<title>(\d+) (\d+)</title>", done.stdout).groups())
    assert wide <= window


@pytest.mark.runs
def test_a_report_of_a_run_with_classes(train, ran, tmp_path):
    overrides = ["model.num_classes=10", "trainer.max_steps=2", "callbacks.samples.every_n_steps=1"]
    assert train(*TINY, *overrides, "hydra.run.dir=run") == 0
    out = ran("report", "run=run", "num=9")
    assert out.strip().endswith("run/report.html")
    text = (tmp_path / "run/report.html").read_text()
    for part in ("Samples by class", "Over time", "iteration 2", "Nearest real images", "lit-gans demo checkpoint=run"):
        assert part in text
    assert Digits.attribution in text
    ran("report", "run=run", "neighbors=false", "output=other.html")
    assert "Nearest real images" not in (tmp_path / "other.html").read_text()


def test_a_report_in_the_folder_of_the_run_names_it_and_missing_data_can_be_left_out(
    tiny_gan, ran, refused, tmp_path, monkeypatch
):
    checkpoint = content(tiny_gan("dcgan"))
    node = {"_target_": "lit_gans.data.sources.folder.Folder", "root": "gone", "image_size": 16, "channels": 1}
    checkpoint["lit_gans"]["config"] = {"data": node}
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    torch.save(checkpoint, tmp_path / "run/checkpoints/last.ckpt")
    (tmp_path / "run/config.yaml").write_text("model: null")
    monkeypatch.chdir(tmp_path / "run")
    assert "neighbors=false writes the report without the training data." in refused("report", "run=.")
    ran("report", "run=.", "neighbors=false")
    text = (tmp_path / "run/report.html").read_text()
    assert f"<title>{tmp_path.name}/run</title>" in text
    assert f"lit-gans sample checkpoint={tmp_path}/run num=64" in text
