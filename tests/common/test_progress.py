import logging
import sys

import pytest

from lit_gans.common import progress
from lit_gans.common.progress import follow, in_words


@pytest.fixture
def said(caplog, monkeypatch):
    """Follows a stage whose every batch takes so many seconds, and returns the lines."""

    def run(seconds, sizes):
        now = iter(range(1000))
        monkeypatch.setattr(progress.time, "monotonic", lambda: seconds * next(now))
        with caplog.at_level(logging.INFO, "lit_gans"):
            batches = [[0] * size for size in sizes]
            assert list(follow("reading", batches, sum(sizes))) == batches
        monkeypatch.undo()
        return caplog.messages

    return run


def test_a_long_stage_says_every_half_minute_where_there_is_no_terminal(said):
    assert said(10, [50] * 10) == ["reading: 500", *(f"reading: {done} of 500" for done in (150, 300, 450))]


def test_a_stage_of_a_moment_says_that_it_begins(said):
    assert said(0.5, [1] * 10) == ["reading: 10"]


def test_a_terminal_has_bars_and_no_lines(caplog, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with caplog.at_level(logging.INFO, "lit_gans"):
        assert list(follow("reading", [[0] * 3, [0]], 4)) == [[0] * 3, [0]]
    assert not caplog.messages
    assert "reading" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "10 s"),
        (94, "90 s"),
        (96, "2 min"),
        (94 * 60, "94 min"),
        (100 * 60, "1 h 40 min"),
        (118 * 60, "2 h"),
        (23.99 * 3600, "24 h"),
        (59.9 * 3600, "2 days"),
    ],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
