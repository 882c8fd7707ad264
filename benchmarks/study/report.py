"""The report of a study: one HTML file with every table and plot in it."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.study.plots import plots
from benchmarks.study.tables import Rows, Table, tables

_TITLE = "GAN training on this machine"
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:14px;font-variant-numeric:tabular-nums}
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td:first-child,th:first-child{text-align:left}
figure{display:inline-block;margin:1em}img{max-width:100%}figcaption{font-size:14px}"""
_TYPES = {"svg": "image/svg+xml", "gif": "image/gif"}
HEADINGS = {
    "batch": "Batch sizes",
    "scaling": "Scaling",
    "overlap": "Overlap of computation and communication",
    "optimizations": "Optimizations",
    "deepspeed": "DeepSpeed's tutorial",
    "dual": "Dual discriminators",
    "lightweight": "Lightweight networks",
    "projection": "Projection",
}
QUESTIONS = {
    "batch": "Real images per second, seconds for an epoch of CelebA's 202,599 images, seconds of the measured training"
    " from start to end, and peak memory, by batch size. Images per second count each real image of a generator"
    " iteration once, as the scaling study does; all critic steps of an iteration are in its time.",
    "scaling": "Real images per second of all processes together under strategy=ddp, and efficiency: the share of n"
    " times the speed of one process. Weak scaling has the same batch in each process, strong scaling the same in all."
    " On a CPU the processes share its cores: n processes that lose nothing have an efficiency of 1 / n.",
    "overlap": "Milliseconds of a step in which a process only computes, only communicates, does both, only waits for"
    " data, or does nothing. On a CPU, from the times at which DDP starts and finishes each all-reduce, and the host"
    " waits for it; on CUDA, from the profiler's kernels. Real images from files, packed as in a training.",
    "optimizations": "Which setting makes a step faster, and do the losses after the same images stay the same?",
    "deepspeed": "Seconds for an epoch of CelebA's 202,599 images, batch size per process as in the tutorial: the plain"
    " loop on one device (three backward passes, losses fetched in each step), strategy=ddp, and one engine for each"
    " network.",
    "dual": "Scores by iterations and by seconds of training (without the measurements), seconds until a given FID, and"
    " how busy processor and device are. A digit classifier or EfficientNet-Lite0 judges: the scores are comparable"
    " with each other, not with the study's FID on 64 features.",
    "lightweight": "Parameters and multiply-adds of one image (forward, torch's counter), images per second, speed-up"
    " over plain convolutions of full width, and FID on the digits after equal time.",
    "projection": "A cost model (computation per step, bytes and messages per step, latency and bandwidth of each level"
    " of the network, overlap) predicts images per second on 1 to 1,024 devices. It is compared with steps of several"
    " processes, and with the scaling study's tables.",
}


def markdown(frame: pd.DataFrame) -> str:
    """Returns a table as Markdown."""
    rows = [
        [str(cell).strip().replace("|", "\\|") for cell in row]
        for row in (frame.columns, *frame.itertuples(index=False))
    ]
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(frame.columns)}", *others])


def html_table(table: Table) -> str:
    """Returns a table as HTML."""
    return str(table.frame.to_html(index=False, border=0, na_rep=""))


def write_page(path: Path, rows: Rows, about: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the report.

    Args:
        path: file to write.
        rows: what was measured.
        about: tables of names and values to begin with, by their headings.
    """
    lines = [f"<h1>{html.escape(_TITLE)}</h1>"]
    for heading, values in about.items():
        frame = pd.DataFrame([(name, str(value)) for name, value in values.items()], columns=["", " "])
        lines += [f"<h2>{html.escape(heading)}</h2>", html_table(Table("", frame))]
    for part, found in tables(rows).items():
        lines += [f"<h2>{html.escape(HEADINGS[part])}</h2>", f"<p>{html.escape(QUESTIONS[part])}</p>"]
        for table in found:
            lines += [f"<h3>{html.escape(table.title)}</h3>", html_table(table)]
            lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        for title, kind, data in plots(rows, part):
            image = f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"
            caption = html.escape(title)
            lines.append(f'<figure><img alt="{caption}" src="{image}"><figcaption>{caption}</figcaption></figure>')
    head = f'<meta charset="utf-8"><title>{html.escape(_TITLE)}</title><style>{_STYLE}</style>'
    body = "\n".join(lines)
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n')
