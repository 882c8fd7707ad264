import csv

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
