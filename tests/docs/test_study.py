"""The recorded study: no figure of the pages or of the report was typed by hand."""

import pytest

from benchmarks.study.registry import parts
from benchmarks.study.report import html_table
from benchmarks.study.store import read_results
from docs import compared, study

STAMP, RECORDED = read_results(study.RESULTS)


def test_the_tables_of_the_pages_are_those_of_the_recorded_results():
    texts = [path.read_text() for path in study.PAGES]
    assert [study.page(text, RECORDED, STAMP) for text in texts] == texts, "run: python -m docs.study"
    assert all("".join(texts).count(f"<!-- study: {name} -->") == 1 for name in study.TABLES)


def test_the_tables_of_the_comparisons_are_those_of_the_recorded_results():
    text, found = compared.PAGE.read_text(), compared.read()
    assert compared.page(text, found) == text, "run: python -m docs.compared"
    assert all(text.count(f"<!-- compared: {name} -->") == 1 for name in found)
    assert {len(comparison) for comparison in found.values()} == {5 * 3}, "five GANs, three seeds"


def test_the_recorded_report_is_that_of_the_recorded_results():
    report = study.REPORT.read_text()
    assert len(report) < 2e6
    assert STAMP["commit"] in report
    for name, part in parts().items():
        for table in part.tables(RECORDED):
            assert not table.rows or html_table(table) in report, f"{name}: {table.title}: run: python -m docs.study"


def test_the_recorded_run_has_every_part_no_failed_cell_and_a_reason_for_what_it_lacks():
    assert list(RECORDED) == list(parts())
    assert not [result.cell.name for results in RECORDED.values() for result in results if result.failed]
    assert all(bool(result.repeats) != bool(result.reason) for results in RECORDED.values() for result in results)


def test_the_shares_of_a_step_add_up():
    """Each share's own median over three repeats would not."""
    (shares,) = (table for table in parts()["overlap"].tables(RECORDED) if table.title == "Shares of a step")
    sums = [sum(float(share.removesuffix(" %")) for share in row[2:]) for row in shares.rows]
    assert sums == [pytest.approx(100, abs=0.3)] * len(sums)


def test_the_projection_is_as_close_as_promised():
    """Within 20 % between processes of one machine, within 25 % between hosts on a limited link."""
    (measured,) = (table for table in parts()["projection"].tables(RECORDED) if "this machine" in table.title)
    errors = {row[0]: float(row[-2].removesuffix(" %")) for row in measured.rows}
    assert [name.split(", ")[1] for name in errors] == ["2 processes", "2 hosts", "3 hosts", "4 hosts"]
    assert all(abs(error) <= (20 if "processes" in name else 25) for name, error in errors.items())


def test_results_without_arguments_of_networks_and_with_few_digits(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(
        '{"stamp": {}, "settings": {}, "parts": {"batch": [{"cell": {"part": "batch", "name": "a", "settings":'
        ' {"model": {"x": 1}, "gan": "a"}}, "repeats": [{"s": 0.123456789, "n": 1234567}], "reason": null,'
        ' "failed": false}]}}'
    )
    (result,) = study.recorded(path)["parts"]["batch"]
    assert result["cell"]["settings"] == {"gan": "a"}
    assert result["repeats"] == [{"s": pytest.approx(0.123457, abs=1e-12), "n": 1234567}]
