"""The study's runner: interleaved rounds, stored cells, and what a second run does again."""

import json

import pytest

from benchmarks.study.contract import Cell, Part, Result, Table
from benchmarks.study.progress import Progress
from benchmarks.study.report import markdown_table, sections, write
from benchmarks.study.runner import run
from benchmarks.study.store import Store, read_results
from lit_gans.common.errors import RefusedInput

STAMP = {"commit": "abc"}
CELLS = [Cell("batch", "one", {"size": 1}), Cell("batch", "two", {"size": 2}), Cell("batch", "three", {"size": 3})]


class Measured:
    """Counts the measurements of each cell; `answers` replaces what some of them return."""

    def __init__(self, **answers):
        self.names, self.answers = [], answers

    def __call__(self, cell):
        self.names.append(cell.name)
        return self.answers.get(cell.name, ("result", {"value": float(len(self.names))}))


def test_rounds_are_interleaved_and_reversed(tmp_path):
    measure = Measured()
    results = run(CELLS, Store(tmp_path, STAMP), measure, 2, None)
    assert measure.names == ["one", "two", "three", "three", "two", "one"]
    assert [[repeat["value"] for repeat in result.repeats] for result in results] == [[1, 6], [2, 5], [3, 4]]
    assert results[0].spread("value") == {"median": 3.5, "lower_quartile": 2.25, "upper_quartile": 4.75}


def test_an_interrupted_study_measures_only_what_is_missing(tmp_path):
    def interrupted(cell):
        if cell.name == "three":
            raise KeyboardInterrupt
        return "result", {"value": 0.0}

    with pytest.raises(KeyboardInterrupt):
        run(CELLS, Store(tmp_path, STAMP), interrupted, 1, None)
    measure = Measured()
    results = run(CELLS, Store(tmp_path, STAMP), measure, 1, None)
    assert measure.names == ["three"]
    assert all(result.repeats for result in results)
    run(CELLS, Store(tmp_path, STAMP), measure, 2, None)  # one more repeat of each
    assert measure.names == ["three", "three", "two", "one"]
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("cell", "stamp"),
    [
        (Cell("batch", "one", {"size": 9}), STAMP),
        (Cell("batch", "one", {"size": 1}, ranks=2), STAMP),
        (Cell("batch", "one", {"size": 1}), {"commit": "def"}),
    ],
    ids=["settings", "ranks", "commit"],
)
def test_a_cell_is_measured_again_if_it_or_the_machine_changed(tmp_path, cell, stamp):
    measure = Measured()
    run(CELLS[:1], Store(tmp_path, STAMP), measure, 1, None)
    run([cell], Store(tmp_path, stamp), measure, 1, None)
    assert len(measure.names) == 2


def test_cells_of_another_commit_are_taken_as_they_are(tmp_path):
    failing = Measured(three=("error", "Traceback\nValueError: 1"))
    store = Store(tmp_path, STAMP | {"cores": 2})
    store.write_all({"batch": run(CELLS, store, failing, 2, 0.0), "scaling": [Result(CELLS[0])]}, {})
    measure = Measured()
    store = Store(tmp_path, {"commit": "def", "cores": 2}, any_commit=True)
    results = run(CELLS, store, measure, 2, None)
    assert measure.names == ["three", "three"], "the one that failed"
    assert [result.commit for result in results] == ["abc", "abc", None]
    assert [len(result.repeats) for result in results] == [1, 1, 2]
    assert store.others({"batch"}) == {"scaling": [Result(CELLS[0], commit="abc")]}
    assert read_results(store.write_all({"batch": results}, {}))[1] == {"batch": results}
    elsewhere = Store(tmp_path, {"commit": "def", "cores": 4}, any_commit=True)
    assert not elsewhere.read(CELLS[0]).repeats, "another machine"


def test_what_differs_from_the_cells_measured_before_is_said(tmp_path):
    """Three cells of an interrupted study, one of them without a result."""
    before = [Cell("batch", name, {"gan": name, "model": {"width": 4}}) for name in ("one", "two", "three")]
    store = Store(tmp_path, STAMP)
    assert store.differences(before) is None
    run(before, store, Measured(three=("error", "Traceback\nValueError: 1")), 1, None)
    assert Store(tmp_path, STAMP).differences(before) is None
    names = ("one", "two", "three", "four")
    now = [Cell("batch", name, {"gan": name, "model": {"width": 8}}, ranks=2) for name in names]
    assert Store(tmp_path, STAMP).differences(now) == (
        "2 of 4 cells were measured before, and are measured again: model.width=4, now 8 (2 cells);"
        " processes=1, now 2 (2 cells)."
    )
    assert Store(tmp_path, {"commit": "def"}).differences(before[:1]) == (
        "1 of 1 cells were measured before, and are measured again: commit=abc, now def (1 cells)."
        " any_commit=true takes what other commits measured."
    )
    assert Store(tmp_path, {"commit": "def"}, any_commit=True).differences(before[:1]) is None


def test_damaged_results_are_refused_before_any_work(tmp_path):
    path = tmp_path / "results.json"
    for text in ("{", "[]", '{"stamp": [1], "parts": {}}', '{"stamp": {}, "parts": {"batch": [{}]}}'):
        path.write_text(text)
        with pytest.raises(
            RefusedInput, match=r"results\.json cannot be read \(.*\): delete it, or choose another output"
        ):
            Store(tmp_path, STAMP).others({"scaling"})
    path.unlink()
    path.mkdir()
    with pytest.raises(RefusedInput, match="Is a directory"):
        Store(tmp_path, STAMP).others({"scaling"})


def test_reasons_are_kept_and_errors_are_tried_again(tmp_path):
    known = Cell("batch", "four", reason="needs two devices.")
    measure = Measured(one=("reason", "no CUDA."), two=("error", "Traceback\nValueError: 1"))
    results = {r.cell.name: r for r in run([*CELLS, known], Store(tmp_path, STAMP), measure, 1, None)}
    assert (results["one"].reason, results["four"].reason) == ("no CUDA.", "needs two devices.")
    assert results["two"].failed
    again = Measured()
    run([*CELLS, known], Store(tmp_path, STAMP), again, 1, None)
    assert again.names == ["two"]


def test_no_repeat_starts_once_the_time_is_over(tmp_path):
    measure = Measured()
    results = run(CELLS, Store(tmp_path, STAMP), measure, 5, 0.0)
    assert measure.names == ["one", "two", "three"]
    assert all(len(result.repeats) == 1 for result in results)


def test_a_cell_with_its_own_repeats_is_measured_once(tmp_path):
    measure = Measured()
    run([Cell("dual", "seed 0", once=True)], Store(tmp_path, STAMP), measure, 3, None)
    assert measure.names == ["seed 0"]


def test_the_time_left_is_that_of_the_cells_to_come():
    known = {"batch: two": 100.0, "batch: three": 200.0, "dual: seed 0": 900.0}
    with Progress(CELLS, known) as progress:
        assert progress.remaining() == (3, "about 8 min left")  # 150, the mean of the part, and 100 and 200
    with Progress([Cell("overlap", "dcgan")], known) as progress:
        assert progress.remaining() == (1, "about 7 min left")  # 400, the mean of all parts
    with Progress(CELLS, {}) as progress:
        assert progress.remaining() == (3, "time left unknown")


def test_repeats_for_which_no_time_is_left_are_not_counted(tmp_path, caplog):
    with Progress([*CELLS, *CELLS[::-1]], {"batch: two": 100.0, "batch: three": 200.0}, minutes=5) as progress:
        # two and three were measured: one and two, and after 250 s three, are all that begins in 5 minutes
        assert progress.remaining() == (3, "about 8 min left")
    with caplog.at_level("INFO"):
        run(CELLS, Store(tmp_path, STAMP), Measured(), 5, 0.0)
    assert [record.message.partition(":")[0] for record in caplog.records] == [f"cell {n} of 3" for n in (1, 2, 3)]


class Sizes(Part):
    title = "Sizes | of things"
    question = "How large?"

    def cells(self, settings):
        return CELLS

    def measure(self, cell):
        return {}

    def tables(self, results):
        return [Table("All", ["a|b", "c"], [["<1>", "2"]], ["A note."])]


def test_the_report_lists_every_cell_without_a_measurement(tmp_path):
    results = {"sizes": [Result(CELLS[0], ({"value": 1.0},)), Result(CELLS[1], reason="needs | two devices.")]}
    found = sections({"sizes": Sizes()}, results)
    markdown, page = write(tmp_path, found, {"commit": "abc"}, {"seed": 0})
    for text in (markdown.read_text(), page.read_text()):
        assert "needs" in text
        assert "two devices." in text
        assert "A note." in text
        assert "abc" in text
    assert "&lt;1&gt;" in page.read_text()
    assert markdown_table(found[0].tables[0]) == ["| a\\|b | c |", "|---|---|", "| <1> | 2 |"]


def test_all_results_are_in_one_file_and_other_parts_stay(tmp_path):
    store = Store(tmp_path, STAMP)
    path = store.write_all({"sizes": [Result(CELLS[0], ({"value": 1.0},))]}, {"seed": 0})
    stamp, found = read_results(path)
    assert stamp == STAMP
    assert found == {"sizes": [Result(CELLS[0], ({"value": 1.0},))]}
    assert store.others({"batch"}) == found
    assert store.others({"sizes"}) == {}
    assert Store(tmp_path, {"commit": "def"}).others({"batch"}) == {}
    assert json.loads(path.read_text())["settings"] == {"seed": 0}
