"""What `lit-gans bench soak` does to a training: it is killed, stopped, its files are damaged, its disk is full."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from lit_gans.benchmark.soak_training import STEPS, Lost, Training, processes_of

_LATER = 0.05  # seconds: an iteration with its save takes less
_STARTING = 8.0  # seconds in which a training starts
_IN_EIGHT = 8  # one kill in eight hits the start
_LARGEST = 100_000  # bytes: all files of a training have fewer
_HIGH_BIT = 128  # no character of metrics.csv has it: a flipped digit would be another number
_BLOCK = 4096
_NOT_WRITTEN = (1, 2)  # exit codes: in the middle, and before the first iteration

Fault = Callable[["Run", Training, random.Random], None]


@runtime_checkable
class Run(Protocol):
    """A training to which something happens, and what it must know of it."""

    begins_at: int

    def interrupted(self, training: Training) -> None: ...

    def stopped(self, training: Training) -> None: ...

    def file(self, what: str, draw: random.Random) -> Path | None: ...

    def damaged(self, what: str, path: Path, before: bytes, lost: range) -> None: ...


def _at_random(run: Run, training: Training, draw: random.Random, starting: bool) -> None:
    """Waits for a random moment: while the training starts, or after one of its iterations."""
    if starting and draw.randrange(_IN_EIGHT) == 0:
        time.sleep(draw.uniform(0, _STARTING))
        return
    training.wait_for(draw.randint(min(run.begins_at + 1, STEPS), STEPS))
    time.sleep(draw.uniform(0, _LATER))


def _kill(run: Run, training: Training, draw: random.Random) -> None:
    _at_random(run, training, draw, starting=True)
    training.kill()
    run.interrupted(training)


def _kill_a_rank(run: Run, training: Training, draw: random.Random) -> None:
    """Kills one process; the others must end by themselves."""
    _at_random(run, training, draw, starting=False)
    alive = [process for process in processes_of(training.process.pid) if training.process.poll() is None]
    if alive:
        _send(draw.choice(alive), signal.SIGKILL)
    if training.end() == 0 and run.begins_at < STEPS and STEPS not in training.iterations:
        raise Lost("a rank was killed, and the exit code is 0.")
    run.interrupted(training)


def _stop(number: signal.Signals) -> Fault:
    def fault(run: Run, training: Training, draw: random.Random) -> None:
        _at_random(run, training, draw, starting=False)
        if number == signal.SIGINT:  # of a terminal: all processes receive it
            for process in processes_of(training.process.pid):
                _send(process, number)
        else:
            _send(training.process.pid, number)
        code = training.end()
        if code not in (128 + number, -number if STEPS in training.iterations else 128 + number, 0):
            raise Lost(f"{number.name} ends with exit code {code}.")
        if code == 0 and run.begins_at < STEPS and STEPS not in training.iterations:
            raise Lost(f"{number.name} ends with exit code 0, at iteration {training.iterations[-1:]}.")
        run.stopped(training)

    return fault


def _send(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:  # it has just ended
        return


def _damage(what: str, how: str) -> Fault:
    def fault(run: Run, training: Training, draw: random.Random) -> None:
        _kill(run, training, draw)
        path = run.file(what, draw)
        if path is None or not path.stat().st_size:  # not written yet: it was only a kill
            return
        before = path.read_bytes()
        run.damaged(what, path, before, damage(path, how, draw))

    return fault


def damage(path: Path, how: str, draw: random.Random) -> range:
    """Truncates a file, zeroes a block of it or flips a bit, at random; returns which bytes are lost."""
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    text = path.suffix == ".csv"
    if how == "truncated":
        while text and start and content[start - 1] == ord("\n"):  # complete lines: nothing says that some are missing
            start -= 1
        lost = range(start, len(content))
        del content[start:]
    elif how == "zeroed":
        lost = range(start, min(start + _BLOCK, len(content)))
        content[start : lost.stop] = bytes(len(lost))
    else:
        lost = range(start, start + 1)
        content[start] ^= _HIGH_BIT if text else 1 << draw.randrange(8)
    path.write_bytes(content)  # in place: all names of the file have the damage
    return lost


def _full_disk(run: Run, training: Training, draw: random.Random) -> None:
    """The training was started with a limit on the sizes of files, see `largest_file`."""
    code = training.end()
    if code == 0:
        return
    refuse_unclear(code, training.output)
    run.interrupted(training)


def refuse_unclear(code: int, output: str) -> None:
    """Raises `Lost` unless a training that could not write ended with a sentence about it, and without a traceback."""
    if code not in _NOT_WRITTEN or "Traceback (most recent call last)" in output:
        raise Lost(f"a full disk ends with exit code {code}{' and a traceback' if 'Traceback' in output else ''}.")
    if not re.search(r"^lit-gans: .*cannot be written", output, re.MULTILINE):
        raise Lost("a full disk ends without a sentence of what cannot be written.")


def largest_file(name: str, draw: random.Random) -> int | None:
    """Returns the limit of the sizes of files under which a training starts, in bytes, for a fault."""
    return draw.choice((draw.randint(200, 5_000), draw.randint(5_000, _LARGEST))) if name == "full disk" else None


_FILES = ("checkpoint", "packed file", "statistics", "metrics.csv")
FAULTS: dict[str, Fault] = {
    "SIGKILL": _kill,
    "SIGKILL of one process": _kill_a_rank,
    "SIGTERM": _stop(signal.SIGTERM),
    "SIGINT": _stop(signal.SIGINT),
    "full disk": _full_disk,
    **{f"{what} {how}": _damage(what, how) for what in _FILES for how in ("truncated", "zeroed", "flipped bit")},
}
