"""Progress bars of commands, on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Returns a transient bar on stderr, which is disabled (`disable`) outside terminals and notebooks.

    Args:
        columns: columns of the bar; by default description, bar, count and time left.
    """
    console = Console(stderr=True)
    shown = columns or (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*shown, console=console, transient=True, disable=not (console.is_terminal or console.is_jupyter))
