"""What is recorded of a run, and that the page of results shows all that is recorded."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.record import RESULTS, record
from docs import generate
from lit_gans.common.errors import RefusedInput
from lit_gans.config.hydra_app import compose

ROOT = Path(__file__).parents[2]
SIZES = ["model.generator_width=2", "model.discriminator_width=2", "data.batch_size=4", "trainer.max_steps=2"]
COMMAND = " ".join(["lit-gans train experiment=dcgan_digits metrics.num_samples=70", *SIZES])


def test_the_last_checkpoint_of_a_run_is_recorded_and_another_command_refused(ran, tmp_path):
    ran("train", *COMMAND.split()[2:], "hydra.run.dir=run")
    output = tmp_path / "results.json"
    [result] = record(COMMAND, "run", output=str(output))
    assert json.loads(output.read_text()) == [result]
    assert (result["command"], result["iterations"], result["extractor"]) == (COMMAND, 2, "digits")
    assert (result["num_fake"], result["num_real"], result["weights"]) == (70, 5000, "ema")
    with (tmp_path / "run/metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert result["scores"] == {
        name.removeprefix("metric/"): float(last[f"metric/{name}"]) for name in result["scores"]
    }
    assert result["halves"] == pytest.approx(1.68, rel=0.01)
    record(COMMAND, "run", output=str(output))
    assert len(json.loads(output.read_text())) == 1, "it replaces the result of the same command"
    for change, message in {
        "seed=1": "model.seed is 0, not 1",
        "model.generator_width=3": "model.generator_width is 2, not 3",
        "data.batch_size=8": "data.batch_size is 4, not 8",
        "trainer.max_steps=3": "trainer.max_steps is 2, not 3",
    }.items():
        with pytest.raises(RefusedInput, match=message):
            record(f"{COMMAND} {change}", "run", output=str(output))
    with pytest.raises(RefusedInput, match="runs: expected the folder of a run"):
        record(COMMAND, "runs", output=str(output))
    with pytest.raises(RefusedInput, match="begin with lit-gans train"):
        record("python train.py", "run", output=str(output))
    ran("train", *COMMAND.split()[2:], "metrics.scores.fid=null", "hydra.run.dir=without")
    with pytest.raises(RefusedInput, match="digits measures no FID, which the page compares"):
        record(COMMAND, "without", output=str(output))


def test_a_sweep_is_recorded_by_its_command_whatever_its_runs_are_named(ran, tmp_path):
    sizes = [*SIZES, "metrics.num_samples=70", "hydra.sweep.dir=runs", "hydra.sweep.subdir=seed_${seed}"]
    ran("train", "-m", "experiment=glob(dcgan_digits)", "seed=1,0", *sizes)
    output = tmp_path / "results.json"
    sweep = " ".join(["lit-gans train -m experiment='glob(dcgan_*gits)' metrics.num_samples=70", *SIZES])
    record(f"{COMMAND} seed=0", "runs/seed_0", output=str(output))
    record(f"{sweep} seed=0,1", "runs", output=str(output))
    found = json.loads(output.read_text())
    assert [result["command"] for result in found] == [f"{COMMAND} seed=0", f"{COMMAND} seed=1"]
    alone = [record(f"{COMMAND} seed={seed}", f"runs/seed_{seed}", output=str(output))[0] for seed in (0, 1)]
    assert [result["scores"] for result in found] == [result["scores"] for result in alone]
    assert found[0]["scores"] != found[1]["scores"]
    record(COMMAND, "runs/seed_0", output=str(output))
    assert len(json.loads(output.read_text())) == 2, "seed=0 is the default"
    with pytest.raises(
        RefusedInput, match=r"runs/seed_\d is not of lit-gans train .* seed=2: its model.seed is \d, not 2"
    ):
        record(f"{sweep} seed=0,2", "runs", output=str(output))
    with pytest.raises(RefusedInput, match=r"runs/seed_0: expected the folder of a sweep"):
        record(f"{sweep} seed=0,1", "runs/seed_0", output=str(output))


def recorded():
    return json.loads(RESULTS.read_text())


@pytest.mark.parametrize("command", sorted({result["command"] for result in recorded()}))
def test_a_recorded_command_composes_and_trains_as_long_as_recorded(command):
    config = compose(*command.split()[2:])
    assert {config.trainer.max_steps} == {each["iterations"] for each in recorded() if each["command"] == command}


def test_the_page_shows_every_result_beside_the_halves_of_its_data():
    page = generate.results()
    runs = {}
    for result in recorded():
        command, _, seed = result["command"].removeprefix("lit-gans train ").partition(" seed=")
        runs.setdefault((command, result["extractor"]), []).append((seed or "0", result))
    for (command, extractor), seeds in runs.items():
        result = seeds[0][1]
        several = f"{command} seed={','.join(seed for seed, _ in seeds)}"
        typed = several if len(seeds) > 1 else result["command"].removeprefix("lit-gans train ")
        [row] = re.findall(rf"^\| `{re.escape(typed)}` \|.*", table(page, result), re.M)
        assert f" {fmean(each['scores'][f'fid_{extractor}'] for _, each in seeds):.4g} " in row
        assert f"**{result['halves']:.3g}**" in table(page, result)


def table(page, result):
    """Returns the part of the page with a result."""
    [part] = [
        part for part in page.split("## ")[1:] if part.startswith(f"{result['data']}, by `{result['extractor']}`")
    ]
    return part


TABLES = ["benchmarks/recorded/benchmarks.md", "benchmarks/recorded/emoji.md"]


def test_tables_of_other_pages_have_the_recorded_fids():
    rows = [line for page in TABLES for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    seen = set()
    for result in recorded():
        name = result["command"].removeprefix("lit-gans train experiment=")
        for row in rows:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            if cells[0] == name and any(re.fullmatch(r"[\d.]+", cell) for cell in cells[1:]):
                fids = {
                    f"{each['scores']['fid_' + each['extractor']]:.4g}"
                    for each in recorded()
                    if each["command"] == result["command"]
                }
                assert fids & {*cells}, f"{row}\nand recorded are {fids}"
                seen.add(name)
    assert {"dcgan_digits", "wgan_gp_digits_classes", "cyclegan_emoji seed=2"} <= seen


def test_the_table_of_the_notebook_has_the_recorded_fids():
    cells = json.loads((ROOT / "notebooks/compare_gans.ipynb").read_text())["cells"]
    table = "".join(cells[-1]["outputs"][0]["data"]["text/plain"])
    fids = {name: float(fid) for name, fid in re.findall(r"^(\w+) +[\d.]+ +([\d.]+)", table, re.M)}
    by_command = {result["command"]: result["scores"] for result in recorded()}
    found = {name: by_command[f"lit-gans train experiment={name}_digits"]["fid_digits"] for name in fids}
    assert len(fids) == 6
    assert fids == {name: round(fid, 2) for name, fid in found.items()}
