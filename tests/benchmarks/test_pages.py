"""The recorded study: no figure of the pages or of the report was typed by hand."""

import re

import pandas as pd
import pytest

from benchmarks.study import pages
from benchmarks.study.parts import PARTS, summary, tables_of
from benchmarks.study.report import html_table
from benchmarks.study.tables import Table
from tests.docs.browser import BROWSER, look

(RECORDED, ABOUT), (COMPARED, _) = pages.read(pages.RESULTS), pages.read(pages.COMPARED)
AGAIN = "run: python -m benchmarks.study.pages"


def test_the_tables_of_the_pages_are_those_of_the_recorded_results():
    texts = [path.read_text() for path in pages.PAGES]
    assert [pages.page(text, RECORDED, ABOUT["stamp"], COMPARED) for text in texts] == texts, AGAIN
    everything = "".join(texts)
    assert all(everything.count(f"<!-- study: {name} -->") == 1 for name in pages.TABLES)
    assert all(everything.count(f"<!-- compared: {data} -->") == 1 for data in ("digits", "stacked_digits"))
    assert len(COMPARED) == 2 * 5 * 3, "two data sets, five GANs, three seeds"


def test_the_recorded_report_is_that_of_the_recorded_results():
    report = pages.REPORT.read_text()
    assert len(report) < 2e6
    assert ABOUT["stamp"]["commit"] in report
    for found in tables_of(RECORDED).values():
        assert all(html_table(table) in report for table in found), AGAIN


def test_the_report_has_a_summary_then_contents_and_fits_a_desktop_and_a_phone(tmp_path):
    report = pages.REPORT.read_text()
    assert report.index("<h2>Summary</h2>") < report.index("<h2>Contents</h2>") < report.index("<h2 id=")
    assert {*re.findall(r'href="#([^"]*)"', report)} == {*re.findall(r' id="([^"]*)"', report)}
    if BROWSER is not None:
        (tmp_path / "site").mkdir()
        (tmp_path / "site/index.html").write_text(
            report.replace("<body", "<body class='md-content'").replace("<details", "<details open")
        )
        (tmp_path / "profile").mkdir()
        assert look(tmp_path / "site", tmp_path / "profile", [])["seen"] == {}


def test_the_summary_says_where_a_part_is_best_and_worst():
    frame = pd.DataFrame({"GAN": ["a", "b", "a"], "processes": [1, 2, 2], "efficiency": ["100 %", "1,051 %", "-3 %"]})
    said = "efficiency of several processes from -3 % (a, processes 2) to 1,051 % (b, processes 2)."
    assert summary("scaling", [Table("Weak scaling", frame)]) == said
    assert summary("scaling", []) == ""


def test_the_recorded_run_has_every_part_and_no_failed_cell():
    assert {row["part"] for row in RECORDED} == {*PARTS}
    assert not [row["cell"] for row in RECORDED if "failed" in row]


def test_the_shares_of_a_step_add_up():
    """Each share's own median over three repeats would not."""
    (shares,) = (table.frame for table in PARTS["overlap"].tables(RECORDED) if table.title == "Shares of a step")
    sums = [sum(float(share.removesuffix(" %")) for share in row[2:-1]) for row in shares.itertuples(index=False)]
    assert sums == [pytest.approx(100, abs=0.3)] * len(sums)


def test_the_projection_is_as_close_as_promised():
    """Within 20 % between the processes of one machine."""
    measured = PARTS["projection"].tables(RECORDED)[0].frame
    errors = {row[0]: float(row[-2].removesuffix(" %")) for row in measured.itertuples(index=False)}
    assert [name.split(", ")[1] for name in errors] == ["2 processes"]
    assert all(abs(error) <= 20 for error in errors.values())
