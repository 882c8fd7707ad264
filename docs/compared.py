"""The recorded comparisons of GANs in the docs: `python -m docs.compared outputs/r3gan/*/results.json` writes them.

It writes the results of the part `dual` without what no table needs (`notebooks/compared_results.json`), and the tables
of `docs/studies/dual_discriminators.md` that they give. Without an argument it writes the tables again from the
recorded results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.study.contract import Result, Table
from benchmarks.study.registry import parts
from benchmarks.study.report import markdown_table
from benchmarks.study.store import result_of
from docs.study import ROOT, recorded

RESULTS = ROOT / "notebooks/compared_results.json"
PAGE = ROOT / "docs/studies/dual_discriminators.md"
_MARKED = re.compile(r"(<!-- compared: (\w+) -->\n).*?(<!-- end of comparison -->\n)", re.S)


def comparison(results: Sequence[Result]) -> Table:
    """Returns the scores of one data set after equal images and after equal time, a row for each GAN."""
    tables = [table for table in parts(["dual"])["dual"].tables({"dual": results}) if table.title.startswith("After")]
    after_images, after_seconds = tables
    settings = results[0].settings
    limits = f"{settings['images']:,} images, {settings['seconds']:g} s"
    # GAN, batch, last and best of the first score, last and best of the second, images/s and MiB after the seconds
    _, _, last, best, second, *_ = after_seconds.columns
    columns = [f"`{settings['data']}`, {limits}", *[last, best] * 2, second, *after_seconds.columns[-2:]]
    rows = [
        [one[0], *one[2:4], *other[2:5], *other[-2:]]
        for one, other in zip(after_images.rows, after_seconds.rows, strict=True)
    ]
    return Table("", columns, rows)


def page(text: str, found: dict[str, list[Result]]) -> str:
    """Returns the page with the tables of the results, by name of the data, between its marks."""
    return _MARKED.sub(
        lambda match: "\n".join([match[1], *markdown_table(comparison(found[match[2]])), "", match[3]]), text
    )


def _without_pictures(result: dict[str, Any]) -> dict[str, Any]:
    kept = [{key: value for key, value in repeat.items() if key != "frames"} for repeat in result["repeats"]]
    return result | {"repeats": kept}


def read() -> dict[str, list[Result]]:
    """Returns the recorded results by name of the data."""
    studies = json.loads(RESULTS.read_text())
    return {name: [result_of(result) for result in each["parts"]["dual"]] for name, each in studies.items()}


def main(arguments: Sequence[str]) -> None:
    """Writes the results, if their files are given, and the tables."""
    if arguments:
        studies = {}
        for content in map(recorded, arguments):
            content["parts"]["dual"] = list(map(_without_pictures, content["parts"]["dual"]))
            studies[content["parts"]["dual"][0]["cell"]["settings"]["data"]] = content
        RESULTS.write_text(json.dumps(studies) + "\n")
    PAGE.write_text(page(PAGE.read_text(), read()))


if __name__ == "__main__":
    main(sys.argv[1:])
