import csv
import os

import pytest

from lit_gans.callbacks import csv_metrics
from lit_gans.callbacks.csv_metrics import CSVMetrics


def rows(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_one_row_a_step_with_all_its_values(tmp_path):
    logger = CSVMetrics(str(tmp_path))
    logger.log_metrics({"loss": 1.5}, step=0)
    logger.log_metrics({"fid": 9.0}, step=0)
    logger.log_metrics({"loss": 0.5}, step=10)
    logger.finalize("success")
    assert rows(tmp_path) == [{"step": "0", "fid": "9.0", "loss": "1.5"}, {"step": "10", "fid": "", "loss": "0.5"}]


def test_a_resumed_run_keeps_what_came_before_and_writes_the_rest_again(tmp_path):
    first = CSVMetrics(str(tmp_path), flush_every=1)
    for step in (0, 10, 20):
        first.log_metrics({"loss": float(step)}, step=step)
    second = CSVMetrics(str(tmp_path), flush_every=1)
    second.log_metrics({"loss": -10.0}, step=10)
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [("0", "0.0"), ("10", "-10.0")]


def test_is_written_every_few_calls_and_at_the_end(tmp_path):
    logger = CSVMetrics(str(tmp_path / "new"), flush_every=2)
    logger.log_metrics({"loss": 1.0}, step=0)
    assert not (tmp_path / "new").exists()
    logger.log_metrics({"loss": 2.0}, step=1)
    assert len(rows(tmp_path / "new")) == 2
    logger.log_metrics({"loss": 3.0}, step=2)
    assert len(rows(tmp_path / "new")) == 2
    logger.finalize("interrupted")
    assert [row["loss"] for row in rows(tmp_path / "new")] == ["1.0", "2.0", "3.0"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["metrics.csv"]


def test_nothing_logged_leaves_the_file_of_an_earlier_run(tmp_path):
    first = CSVMetrics(str(tmp_path), flush_every=1)
    first.log_metrics({"loss": 1.0}, step=0)
    CSVMetrics(str(tmp_path)).finalize("failed")
    assert [row["loss"] for row in rows(tmp_path)] == ["1.0"]


def test_rows_stand_in_the_order_of_the_steps(tmp_path):
    logger = CSVMetrics(str(tmp_path))
    for step in (0, 20, 10):
        logger.log_metrics({"loss": float(step)}, step=step)
    logger.finalize("success")
    assert [row["step"] for row in rows(tmp_path)] == ["0", "10", "20"]


def test_values_are_appended_and_the_file_is_rewritten_for_a_new_column_alone(tmp_path, monkeypatch):
    lines, read = [], []
    original = CSVMetrics._lines
    monkeypatch.setattr(CSVMetrics, "_lines", lambda self, rows: lines.extend(rows) or original(self, rows))
    monkeypatch.setattr(CSVMetrics, "_read", lambda self: read.append(1) or {})
    logger = CSVMetrics(str(tmp_path), flush_every=3)
    for step in range(300):
        logger.log_metrics({"loss": float(step)}, step=step)
        logger.log_metrics({"speed": 2.0 * step}, step=step)
    assert len(lines) <= 2 * 300, "each row once, and again while it is the last one: no quadratic rewriting"
    assert not read
    monkeypatch.undo()
    with (tmp_path / "metrics.csv").open() as first:
        logger.log_metrics({"loss": 0.25}, step=300)
        logger.save()
        assert os.fstat(first.fileno()).st_nlink == 1, "the same file"
        logger.log_metrics({"fid": 3.5}, step=300)
        logger.save()
        assert os.fstat(first.fileno()).st_nlink == 0, "another file: there is a new column"
    found = rows(tmp_path)
    assert [row["step"] for row in found] == [str(step) for step in range(301)]
    assert [float(row["speed"]) for row in found[:300]] == [2.0 * step for step in range(300)]
    assert found[-1] == {"step": "300", "fid": "3.5", "loss": "0.25", "speed": ""}
    assert len(logger._rows) == 1, "what is written is not held in memory"


def test_the_last_row_receives_values_after_it_was_written(tmp_path):
    logger = CSVMetrics(str(tmp_path), flush_every=1)
    for step in (0, 1):
        for name in ("a", "b"):
            logger.log_metrics({name: 1.0 + step}, step=step)
    assert rows(tmp_path) == [{"step": "0", "a": "1.0", "b": "1.0"}, {"step": "1", "a": "2.0", "b": "2.0"}]
    logger.log_metrics({"b": 9.0}, step=0)
    assert rows(tmp_path) == [{"step": "0", "a": "1.0", "b": "9.0"}, {"step": "1", "a": "2.0", "b": "2.0"}]


@pytest.mark.parametrize("torn", ["30,", "30,5.", "30\r\n", "\0\0\0\r\n", "3,5.0,7.0\r\n", ""])
def test_a_torn_last_line_is_dropped(tmp_path, torn):
    first = CSVMetrics(str(tmp_path))
    for step in (0, 10, 20):
        first.log_metrics({"loss": float(step)}, step=step)
    first.finalize("interrupted")
    with (tmp_path / "metrics.csv").open("a", newline="") as file:
        file.write(torn)
    second = CSVMetrics(str(tmp_path), flush_every=1)
    for step in (40, 50):
        second.log_metrics({"loss": float(step)}, step=step)
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [
        (str(step), f"{step}.0") for step in (0, 10, 20, 40, 50)
    ]


def test_a_run_that_begins_anew_keeps_nothing_of_an_earlier_one(tmp_path):
    first = CSVMetrics(str(tmp_path), flush_every=1)
    first.log_metrics({"old": 1.0}, step=0)
    (tmp_path / "metrics.csv").write_text((tmp_path / "metrics.csv").read_text() + "5,2.0")
    second = CSVMetrics(str(tmp_path), flush_every=1)
    second.log_metrics({"loss": 1.0}, step=0)
    assert rows(tmp_path) == [{"step": "0", "loss": "1.0"}]


def test_damaged_lines_are_named_and_the_others_stay(tmp_path, caplog):
    first = CSVMetrics(str(tmp_path))
    for step in (0, 10, 20, 30, 40):
        first.log_metrics({"loss": float(step)}, step=step)
    first.finalize("interrupted")
    lines = (tmp_path / "metrics.csv").read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * len(lines[2])
    lines[3] = lines[3].replace(b"2", b"\x80")
    lines[5] = lines[5].replace(b"40.0", b"4k.0")
    (tmp_path / "metrics.csv").write_bytes(b"".join(lines))
    CSVMetrics(str(tmp_path), flush_every=1).log_metrics({"loss": 50.0}, step=50)
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [("0", "0.0"), ("30", "30.0"), ("50", "50.0")]
    (warning,) = caplog.messages
    # zeros have no end of a line
    assert warning.endswith("metrics.csv is damaged: rows that cannot be read are left out, line 3, 5.")


@pytest.mark.parametrize("header", [b"", b"step,lo", b"step,l\xefss\r\n", b"step,l\0ss\r\n"])
def test_a_damaged_header_is_named_and_no_row_gets_another_column(tmp_path, caplog, header):
    (tmp_path / "metrics.csv").write_bytes(header + b"0,1.0\r\n" * header.endswith(b"\n"))
    logger = CSVMetrics(str(tmp_path), flush_every=1)
    logger.log_metrics({"loss": 2.0}, step=1)
    assert rows(tmp_path) == [{"step": "1", "loss": "2.0"}]
    assert "metrics.csv is damaged: its header cannot be read" in caplog.text


def test_a_process_killed_while_it_appends_has_not_lost_the_last_row(tmp_path, monkeypatch):
    """The row of the last iteration is written again with more values: what it had must not be gone before."""
    logger = CSVMetrics(str(tmp_path), flush_every=1)
    logger.log_metrics({"fid": 9.0, "loss": 1.0}, step=0)
    before = (tmp_path / "metrics.csv").read_bytes()
    monkeypatch.setattr(CSVMetrics, "_lines", lambda *_: [None])
    with pytest.raises(TypeError):  # in place of a kill
        logger.log_metrics({"loss": 2.0}, step=1)
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_the_row_of_an_iteration_is_on_disk_before_its_checkpoint(tmp_path, monkeypatch):
    synchronized = []
    monkeypatch.setattr(csv_metrics, "synchronize", lambda path: synchronized.append(rows(path.parent)))
    logger = CSVMetrics(str(tmp_path))
    logger.save_iteration(4, {"loss": 2.0})
    assert synchronized == [[{"step": "4", "loss": "2.0"}]]
    logger.log_metrics({"loss": 2.0}, step=4)
    logger.finalize("success")
    assert rows(tmp_path) == synchronized[0], "logged twice, one row"
