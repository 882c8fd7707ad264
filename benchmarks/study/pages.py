"""The recorded study in the docs: `python -m benchmarks.study.pages outputs/study/results.json` writes it after a run.

It records the results (`notebooks/scaling_results.json`), and writes the report that they give
(`benchmarks/recorded/report.html`) and the tables beside it, with the studies' figures beside ours. Without an argument
it writes the report and the tables again from what is recorded. `--compared FILES` records the comparisons of GANs of
`benchmarks/recorded/dual_discriminators.md` (`notebooks/compared_results.json`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import scaling_study
from benchmarks.study import tables
from benchmarks.study.parts import PARTS
from benchmarks.study.report import markdown, write_page
from benchmarks.study.tables import Rows, Table, measured

ROOT = Path(__file__).parents[2]
RESULTS, COMPARED = ROOT / "notebooks/scaling_results.json", ROOT / "notebooks/compared_results.json"
RECORDED = ROOT / "benchmarks/recorded"
REPORT, PAGES = RECORDED / "report.html", sorted(RECORDED.glob("*.md"))
_MARKED = re.compile(r"(<!-- (study|compared): (\w+) -->\n).*?(<!-- end of \w+ -->\n)", re.S)
_DIGITS = 6  # of recorded numbers
_NAMES = {"dcgan": "DCGAN", "sngan": "SNGAN", "wgan_gp": "WGAN-GP"}
_STUDY = "the study's GPUs"
_EPOCHS = {1: 393, 16: 128}  # seconds an epoch in DeepSpeed's tutorial, by GPUs
Stamp = Mapping[str, Any]


def machine(rows: Rows, stamp: Stamp) -> Table:
    """Returns what was measured where."""
    found = [[name, str(stamp[name])] for name in ("device_name", "cores", "torch", "lightning", "deepspeed", "commit")]
    repeats = [row for row in rows if "reason" not in row]
    cells = {(row["part"], row["cell"]) for row in repeats}
    minutes = sum(row["cell_seconds"] for row in repeats) / 60
    found.append(["cells", f"{len(cells)} measured {len(repeats)} times in {minutes:.0f} minutes"])
    found.append(["not measured, with reasons", str(len(rows) - len(repeats))])
    return Table("", pd.DataFrame(found, columns=["", " "]))


def _repeats(found: pd.DataFrame) -> str:
    """Returns the smallest and the largest number of repeats of medians, or the only one."""
    return " to ".join(dict.fromkeys((str(found["n"].min()), str(found["n"].max()))))


def _ours(found: pd.DataFrame) -> str:
    return f"Ours: medians of {_repeats(found)} repeats, whose ranges are in the report."


def batch(rows: Rows, stamp: Stamp) -> Table:
    """Returns images per second by batch size: the scaling study's, and ours."""
    frame = measured(rows, "batch")
    found = tables.medians(frame[frame["device"] == "cpu"], "gan", "batch_size").set_index(["gan", "batch_size"])
    speeds = found["generator_images_per_second"].to_dict()
    sizes = sorted({size for _, size in speeds})

    def here(gan: str) -> dict[str, str]:
        shown = {str(size): f"{speeds[gan, size]:.1f}" if (gan, size) in speeds else "-" for size in sizes}
        return {"images/s": f"{_NAMES.get(gan, gan)}, here", **shown}

    lines = []
    for gan, known in scaling_study.ONE_NODE.items():
        gpus, cpu = ({"images/s": f"{_NAMES[gan]}, {of}"} for of in (_STUDY, "the study's CPU"))
        lines.append(gpus | {str(size): str(known.get(size, "")) for size in sizes})
        lines.append(cpu | {str(size): str(scaling_study.CPU_AT_128[gan]) if size == 128 else "" for size in sizes})
        lines.append(here(gan))
    lines += [here(gan) for gan in sorted({gan for gan, _ in speeds} - set(scaling_study.ONE_NODE))]
    note = f"{_ours(found)} -: not measured, for the reason there."
    return Table("", pd.DataFrame(lines), [tables.batch(rows)[0].notes[0], note])


def scaling(rows: Rows, stamp: Stamp) -> Table:
    """Returns weak and strong scaling: the study's, and ours."""
    columns = ["images/s", "scaling", "one", "several", "efficiency"]
    lines = []
    for point in scaling_study.POINTS:
        one, speed = scaling_study.ONE_NODE[point.gan][128], point.images_per_second
        several, share = f"{speed:.0f} ({point.nodes} nodes)", f"{100 * speed / one / point.nodes:.0f} %"
        lines.append([f"{_NAMES[point.gan]}, {_STUDY}", point.kind, str(one), several, share])
    found = tables.scaling_medians(rows)
    for _, row in found[found["ranks"] > 1].iterrows():
        several = f"{row['generator_images_per_second']:.1f} ({row['ranks']} processes)"
        name = f"{_NAMES.get(row['gan'], row['gan'])}, here"
        lines.append([name, row["kind"], f"{row['one']:.1f}", several, f"{100 * row['efficiency']:.0f} %"])
    return Table("", pd.DataFrame(lines, columns=columns), [*tables.scaling(rows)[0].notes[:2], _ours(found)])


def optimizations(rows: Rows, stamp: Stamp) -> Table:
    """Returns the speed of each setting relative to its baseline, a column for each GAN."""
    found = tables.relative_speeds(rows)
    found = found[found["ratio"].notna()]
    shown = {}
    for _, row in found.iterrows():
        low, high = (row[name] / row["generator_images_per_second"] for name in ("low", "high"))
        spread = f" ({low:.2f} .. {high:.2f})" if row["is_base"] else ""
        shown[row["variant"], row["gan"]] = f"{row['ratio']:.2f}{spread}"
    gans, names = found["gan"].unique(), found["variant"].unique()
    lines = [[name, *(shown.get((name, gan), "-") for gan in gans)] for name in names]
    notes = [
        f"Ratios of medians of {_repeats(found)} repeats. In parentheses: the range of the baseline's own repeats. A"
        " ratio within it shows no effect; one outside of it may still be chance, with so few repeats.",
        tables.sizes(found),
    ]
    return Table("", pd.DataFrame(lines, columns=["times as fast as the baseline", *gans]), notes)


def _beside(table: Table, study: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Table:
    """Returns a table below rows of a study."""
    return Table("", pd.concat([pd.DataFrame(study, columns=table.frame.columns), table.frame]), notes)


def overlap(rows: Rows, stamp: Stamp) -> Table:
    """Returns the shares of a step: of communication alone in the study, and all of them here."""
    table = _of("overlap", "Shares of a step")(rows, stamp)
    return _beside(table, [[_STUDY, "1 to 8 nodes", "", "14 to 53 %", "", "", "", ""]])


def deepspeed(rows: Rows, stamp: Stamp) -> Table:
    """Returns the seconds of an epoch: the tutorial's, and ours."""
    study = [
        ["the tutorial's GPUs", str(gpus), "", "", f"{seconds}, measured", f"{_EPOCHS[1] / seconds:.2f}", ""]
        for gpus, seconds in _EPOCHS.items()
    ]
    table = tables.deepspeed(rows)[0]
    return _beside(table, study, table.notes)


def _of(part: str, title: str) -> Callable[[Rows, Stamp], Table]:
    """Returns what makes a table of the report, by the beginning of its title."""
    return lambda rows, stamp: next(table for table in PARTS[part].tables(rows) if table.title.startswith(title))


TABLES: dict[str, Callable[[Rows, Stamp], Table]] = {
    "machine": machine,
    "batch": batch,
    "scaling": scaling,
    "overlap": overlap,
    "loading": lambda rows, stamp: tables.loading(rows),
    "optimizations": optimizations,
    "binding": _of("optimizations", "Processes and cores"),
    "colossal": _of("optimizations", "The techniques of the Colossal-AI study"),
    "deepspeed": deepspeed,
    "dual": _of("dual", "At the end"),
    "lightweight": _of("lightweight", "Blocks and width multipliers of DCGAN"),
    "projection": _of("projection", "Predicted and measured on this machine"),
    "study": _of("projection", "The scaling study's tables, one GPU a node"),
}


def comparison(rows: Rows, data: str) -> Table:
    """Returns the scores on one data set after equal images and after equal time, a row for each GAN."""
    frame = measured(rows, "dual")
    own = frame[frame["data"] == data]
    limits = {"images": f"{own['images'].iloc[0]:,} images", "s": f"{own['limit_seconds'].iloc[0]:g} s"}
    found = {unit: tables.after(unit, data, own).frame for unit in limits}
    shown = found["images"][["GAN"]].rename(columns={"GAN": f"`{data}`"})
    for name, _ in tables.SCORES[data].values():
        shown = shown.assign(
            **{f"{name} after {limit}": found[unit][f"{name}, last"] for unit, limit in limits.items()}
        )
    return Table("", shown.assign(**found["s"][["images/s", "MiB"]]))


def page(text: str, rows: Rows, stamp: Stamp, compared: Rows) -> str:
    """Returns a page with the tables of the recorded results between its marks."""

    def table(match: re.Match[str]) -> str:
        drawn = TABLES[match[3]](rows, stamp) if match[2] == "study" else comparison(compared, match[3])
        notes = [f"\n{note}" for note in drawn.notes]
        return "\n".join([match[1], markdown(drawn.frame), *notes, "", match[4]])

    return _MARKED.sub(table, text)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def read(path: Path) -> tuple[Rows, dict[str, Any]]:
    """Returns the rows of a `results.json`, and the rest of it."""
    content = json.loads(path.read_text())
    return content.pop("rows"), content


def main(arguments: Sequence[str]) -> None:
    """Records the results, if their files are given, and writes the report and the tables."""
    if arguments[:1] == ["--compared"]:
        studies = [_rounded(json.loads(Path(path).read_text())) for path in arguments[1:]]
        rows = [{**row, "frames": []} for study in studies for row in study["rows"]]
        COMPARED.write_text(json.dumps(studies[0] | {"rows": rows}) + "\n")
    elif arguments:
        RESULTS.write_text(json.dumps(_rounded(json.loads(Path(arguments[0]).read_text()))) + "\n")
    (rows, about), (compared, _) = read(RESULTS), read(COMPARED)
    write_page(REPORT, rows, {"Machine": about["stamp"], "Sizes": about["settings"]})
    for path in PAGES:
        path.write_text(page(path.read_text(), rows, about["stamp"], compared))


if __name__ == "__main__":
    main(sys.argv[1:])
