import csv
import os

import pytest

from lit_gans.callbacks import csv_metrics
from lit_gans.callbacks.csv_metrics import CSVMetrics


def rows(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def log(folder, steps):
    """Logs a loss that is the step, in a run that resumes at the first step."""
    logger = CSVMetrics(str(folder))
    logger.resume_at(steps[0])
    for step in steps:
        logger.log_metrics({"loss": float(step)}, step=step)
    return logger


def losses(folder):
    return {int(row["step"]): float(row["loss"]) for row in rows(folder)}


def test_one_row_a_step_with_all_its_values_in_the_order_of_the_steps(tmp_path):
    logger = CSVMetrics(str(tmp_path / "new"))
    for step in (0, 1, 3, 2, 9, 8, 7, 6, 5, 4):
        logger.log_metrics({"loss": float(step)}, step=step)
        logger.log_metrics({"fid": 9.0 - step}, step=step)
    for step in (9, 0):
        logger.log_metrics({"loss": 0.5}, step=step)
    expected = {step: {"fid": 9.0 - step, "loss": 0.5 if step in (9, 0) else float(step)} for step in range(10)}
    assert rows(tmp_path / "new") == [
        {"step": str(step), **{name: str(value) for name, value in row.items()}} for step, row in expected.items()
    ]
    logger.log_metrics({"is": 2.0}, step=10)
    assert rows(tmp_path / "new")[-1] == {"step": "10", "fid": "", "is": "2.0", "loss": ""}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["metrics.csv"]


def test_a_resumed_run_keeps_what_came_before_and_writes_the_rest_again(tmp_path):
    log(tmp_path, (0, 10, 20)).log_metrics({"fid": 5.0}, step=10)
    second = CSVMetrics(str(tmp_path))
    second.resume_at(10)
    assert losses(tmp_path) == {0: 0, 10: 10, 20: 20}, "nothing is logged yet"
    second.log_metrics({"loss": -10.0}, step=10)
    assert losses(tmp_path) == {0: 0, 10: -10}
    assert rows(tmp_path)[-1]["fid"] == "5.0", "what was measured before the checkpoint stays"


def test_rows_of_after_the_checkpoint_are_dropped_even_if_the_next_row_is_later(tmp_path):
    log(tmp_path, (10, 20, 25)).log_metrics({"loss": 30.0, "fid": 5.0}, step=30)
    second = CSVMetrics(str(tmp_path))
    second.resume_at(20)
    second.log_metrics({"loss": -30.0}, step=30)
    assert losses(tmp_path) == {10: 10, 20: 20, 30: -30}
    assert not rows(tmp_path)[-1].get("fid")


def test_a_logger_of_two_runs_keeps_their_rows_apart(tmp_path):
    logger = log(tmp_path, (10, 20))
    logger.finalize("success")
    logger.begin_run()
    for step in (5, 15):
        logger.log_metrics({"loss": -1.0}, step=step)
        logger.begin_run()  # every callback of a new run calls this method
    assert losses(tmp_path) == {5: -1, 15: -1}
    assert (tmp_path / "metrics-1.csv").read_text().splitlines() == ["step,loss", "10,10.0", "20,20.0"]
    logger.finalize("success")
    logger.log_metrics({"loss": -2.0}, step=10)  # the same run continues from iteration 10
    assert losses(tmp_path) == {5: -1, 10: -2}


def test_a_run_that_is_not_resumed_keeps_the_file_of_another_run_apart(tmp_path):
    log(tmp_path, (10, 20, 30))
    CSVMetrics(str(tmp_path)).log_metrics({"loss": -20.0}, step=20)
    assert losses(tmp_path) == {20: -20}
    assert (tmp_path / "metrics-1.csv").read_text().splitlines()[1:] == ["10,10.0", "20,20.0", "30,30.0"]


def test_a_new_run_keeps_no_line_of_an_earlier_run(tmp_path):
    CSVMetrics(str(tmp_path)).log_metrics({"old": 1.0}, step=0)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("5,2.0")
    log(tmp_path, (0,))
    assert rows(tmp_path) == [{"step": "0", "loss": "0.0"}]


def test_values_are_appended_and_the_file_is_rewritten_for_a_new_column_alone(tmp_path):
    logger = log(tmp_path, range(300))
    with (tmp_path / "metrics.csv").open() as first:
        for step in (300, 299):  # a measurement is logged before the losses of the iteration before
            logger.log_metrics({"loss": float(step)}, step=step)
        assert os.fstat(first.fileno()).st_nlink == 1, "the same file"
        assert [int(row["step"]) for row in rows(tmp_path)] == [*range(301)]
        logger.log_metrics({"fid": 3.5}, step=300)
        assert os.fstat(first.fileno()).st_nlink == 0, "another file: there is a new column"
    assert losses(tmp_path) == {step: step for step in range(301)}
    assert rows(tmp_path)[-1] == {"step": "300", "fid": "3.5", "loss": "300.0"}


@pytest.mark.parametrize("torn", ["30,", "30,5.", "30\r\n", "\0\0\0\r\n", "3,5.0,7.0\r\n", ""])
def test_a_torn_last_line_is_dropped(tmp_path, torn):
    log(tmp_path, (0, 10, 20))
    with (tmp_path / "metrics.csv").open("a", newline="") as file:
        file.write(torn)
    log(tmp_path, (40, 50))
    assert losses(tmp_path) == {step: step for step in (0, 10, 20, 40, 50)}


def test_damaged_lines_are_named_and_intact_lines_stay(tmp_path, caplog):
    log(tmp_path, (0, 10, 20, 30, 40))
    lines = (tmp_path / "metrics.csv").read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * len(lines[2])
    lines[3] = lines[3].replace(b"2", b"\x80")
    lines[5] = lines[5].replace(b"40.0", b"4k.0")
    (tmp_path / "metrics.csv").write_bytes(b"".join(lines))
    log(tmp_path, (50,))
    assert losses(tmp_path) == {0: 0, 30: 30, 50: 50}
    (warning,) = caplog.messages
    # zeros have no end of a line
    assert warning.endswith("metrics.csv is damaged. Lines that cannot be read are left out: 3, 5.")


@pytest.mark.parametrize("header", [b"", b"step,lo", b"step,l\xefss\r\n", b"step,l\0ss\r\n"])
def test_a_damaged_header_is_named_and_no_row_gets_another_column(tmp_path, caplog, header):
    (tmp_path / "metrics.csv").write_bytes(header + b"0,1.0\r\n" * header.endswith(b"\n"))
    log(tmp_path, (1,))
    assert losses(tmp_path) == {1: 1}
    assert "metrics.csv is damaged: its header cannot be read" in caplog.text


def test_a_process_killed_while_it_appends_has_not_lost_the_last_row(tmp_path, monkeypatch):
    """The row of the last iteration is written again with more values: what it had must not be gone before."""
    logger = CSVMetrics(str(tmp_path))
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
    logger.log_metrics({"loss": 2.0}, step=4)
    assert synchronized == [[{"step": "4", "loss": "2.0"}]]
    assert rows(tmp_path) == synchronized[0], "logged twice, one row"
