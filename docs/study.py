"""The recorded study in the docs: `python -m docs.study outputs/study/results.json` writes it after a run.

It writes the results without what no table needs (`notebooks/scaling_results.json`), the report that they give
(`docs/study_report.html`), and the tables of `docs/studies`, with the studies' figures beside ours. Without an
argument it writes the report and the tables again from the recorded results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import scaling_study
from benchmarks.study.contract import Result, Table
from benchmarks.study.parts.optimizations import relative_speed
from benchmarks.study.registry import parts
from benchmarks.study.report import markdown_table, sections, write_page
from benchmarks.study.store import read_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "notebooks/scaling_results.json"
REPORT = ROOT / "docs/study_report.html"
PAGES = sorted((ROOT / "docs/studies").glob("*.md"))
_MARKED = re.compile(r"(<!-- study: (\w+) -->\n).*?(<!-- end of study -->\n)", re.S)
_DIGITS = 6  # of recorded numbers
_NAMES = {"dcgan": "DCGAN", "sngan": "SNGAN", "wgan_gp": "WGAN-GP"}
_STUDY = "the study's GPUs"
_LOADING = {
    2: (4100, 9500),
    4: (7800, 18400),
}  # the dual-discriminator study's images/s with and without loading, by GPUs
_EPOCHS = {1: 393, 16: 128}  # seconds an epoch in DeepSpeed's tutorial, by GPUs
Results = Mapping[str, Sequence[Result]]


def machine(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns what was measured where."""
    cells = [result for found in results.values() for result in found]
    rows = [[name, str(stamp[name])] for name in ("device_name", "cores", "torch", "lightning", "deepspeed", "commit")]
    measured = [result for result in cells if result.repeats]
    repeats = sum(len(result.repeats) for result in measured)
    seconds = sum(repeat["cell_seconds"] for result in measured for repeat in result.repeats)
    rows.append(["cells", f"{len(measured)} measured {repeats} times in {seconds / 60:.0f} minutes"])
    failed = [f"{result.cell.part}: {result.cell.name}" for result in cells if result.failed]
    rows.append(["not measured, with reasons", str(len(cells) - len(measured) - len(failed))])
    rows += [["failed", name] for name in failed]
    others = sorted({result.commit for result in measured if result.commit})
    rows += [["commit of other cells", name] for name in others]
    return Table("", ["", ""], rows)


def batch(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns images per second by batch size: the scaling study's, and ours."""
    own = {(r.settings["gan"], r.settings["batch_size"]): r for r in results["batch"] if r.settings["device"] == "cpu"}
    sizes = sorted({size for _, size in own})
    rows = []
    for gan, speeds in scaling_study.ONE_NODE.items():
        rows.append([f"{_NAMES[gan]}, {_STUDY}", *(str(speeds.get(size, "")) for size in sizes)])
        at_128 = [str(scaling_study.CPU_AT_128[gan]) if size == 128 else "" for size in sizes]
        rows.append([f"{_NAMES[gan]}, the study's CPU", *at_128])
        rows.append([f"{_NAMES[gan]}, here", *(_speed(own[gan, size]) for size in sizes)])
    others = sorted({gan for gan, _ in own} - set(scaling_study.ONE_NODE))
    rows += [[f"{gan}, here", *(_speed(own[gan, size]) for size in sizes)] for gan in others]
    return Table("", ["images/s", *map(str, sizes)], rows)


def _speed(result: Result) -> str:
    return f"{result.median('generator_images_per_second'):.1f}" if result.repeats else "-"


def scaling(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns weak and strong scaling: the study's, and ours."""
    rows = []
    for point in scaling_study.POINTS:
        one = scaling_study.ONE_NODE[point.gan][128]
        speed, nodes = point.images_per_second, point.nodes
        share = f"{100 * speed / one / nodes:.0f} %"
        rows.append([f"{_NAMES[point.gan]}, {_STUDY}", point.kind, str(one), f"{speed:.0f} ({nodes} nodes)", share])
    own = [result for result in results["scaling"] if result.repeats]
    for result in own:
        if result.cell.ranks > 1:
            gan, kind = (result.settings[name] for name in ("gan", "kind"))
            (alone,) = (r for r in own if r.cell.ranks == 1 and (r.settings["gan"], r.settings["kind"]) == (gan, kind))
            one, speed = (each.median("generator_images_per_second") for each in (alone, result))
            several = f"{speed:.1f} ({result.cell.ranks} processes)"
            share = f"{100 * speed / one / result.cell.ranks:.0f} %"
            rows.append([f"{_NAMES.get(gan, gan)}, here", kind, f"{one:.1f}", several, share])
    return Table("", ["images/s", "scaling", "one", "several", "efficiency"], rows)


def overlap(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns the shares of a step: of communication alone in the study, and all of them here."""
    table = _of("overlap", "Shares of a step", results)
    alone = table.columns.index("communication")
    study = [_STUDY, "1 to 8 nodes", *[""] * (len(table.columns) - 2)]
    study[alone] = "14 to 53 %"
    return replace(table, rows=[study, *table.rows], notes=())


def optimizations(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns the speed of each setting relative to its baseline, a column for each GAN."""
    own = [result for result in results["optimizations"] if result.repeats]
    gans = list(dict.fromkeys(result.settings["gan"] for result in own))
    names = list(dict.fromkeys(result.settings["variant"] for result in own))
    found = {(result.settings["variant"], result.settings["gan"]): relative_speed(result, own) for result in own}
    shown = {key: "" if ratio is None else f"{ratio:.2f}" for key, ratio in found.items()}
    rows = [[name, *(shown.get((name, gan), "-") for gan in gans)] for name in names]
    return Table("", ["times as fast as the baseline", *gans], rows)


def _of(part: str, title: str, results: Results) -> Table:
    """Returns a table of the report by the beginning of its title."""
    (table,) = (table for table in parts([part])[part].tables(results) if table.title.startswith(title))
    return table


def loading(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns images per second with and without loading: the dual-discriminator study's, and ours."""
    table = _of("overlap", "With and without loading", results)
    study = [
        ["the study's V100s", str(gpus), f"{loaded}", f"{alone}", f"{100 * loaded / alone:.0f} %"]
        for gpus, (loaded, alone) in _LOADING.items()
    ]
    return replace(table, rows=[*study, *table.rows])


def deepspeed(results: Results, stamp: Mapping[str, Any]) -> Table:
    """Returns the seconds of an epoch: the tutorial's, and ours."""
    table = _of("deepspeed", "Seconds an epoch", results)
    study = [
        ["the tutorial's GPUs", str(gpus), str(seconds), f"{_EPOCHS[1] / seconds:.2f}", ""]
        for gpus, seconds in _EPOCHS.items()
    ]
    return replace(table, rows=[*study, *table.rows])


def _reported(part: str, title: str) -> Callable[[Results, Mapping[str, Any]], Table]:
    return lambda results, stamp: _of(part, title, results)


TABLES: dict[str, Callable[[Results, Mapping[str, Any]], Table]] = {
    "machine": machine,
    "batch": batch,
    "scaling": scaling,
    "overlap": overlap,
    "loading": loading,
    "optimizations": optimizations,
    "binding": _reported("optimizations", "Processes and cores"),
    "colossal": _reported("optimizations", "The techniques of the Colossal-AI study"),
    "deepspeed": deepspeed,
    "dual": _reported("dual", "At the end"),
    "images": _reported("dual", "After"),
    "lightweight": _reported("lightweight", "Blocks and width multipliers of DCGAN"),
    "projection": _reported("projection", "Predicted and measured on this machine"),
    "study": _reported("projection", "The scaling study's tables, one GPU a node"),
}


def page(text: str, results: Results, stamp: Mapping[str, Any]) -> str:
    """Returns the page with the tables of the results between its marks."""

    def table(match: re.Match[str]) -> str:
        drawn = TABLES[match[2]](results, stamp)
        notes = [f"\n{note}" for note in drawn.notes]
        return "\n".join([match[1], *markdown_table(drawn), *notes, "", match[3]])

    return _MARKED.sub(table, text)


def recorded(path: str | Path) -> dict[str, Any]:
    """Returns the content of a `results.json` without the networks' arguments, and with numbers of few digits."""
    stamp, results = read_results(path)
    settings = json.loads(Path(path).read_text())["settings"]
    found = {
        name: [
            asdict(replace(r, cell=replace(r.cell, settings={k: v for k, v in r.settings.items() if k != "model"})))
            for r in each
        ]
        for name, each in results.items()
    }
    return {"stamp": stamp, "settings": settings, "parts": _rounded(found)}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def main(arguments: Sequence[str]) -> None:
    """Writes the results, if their file is given, the report and the tables."""
    if arguments:
        RESULTS.write_text(json.dumps(recorded(arguments[0])) + "\n")
    stamp, results = read_results(RESULTS)
    settings = json.loads(RESULTS.read_text())["settings"]
    write_page(REPORT, sections(parts(), results), stamp, settings)
    for path in PAGES:
        path.write_text(page(path.read_text(), results, stamp))


if __name__ == "__main__":
    main(sys.argv[1:])
