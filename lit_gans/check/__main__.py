"""`torchrun --nproc_per_node 2 -m lit_gans.check [--steps 20] [-m] SCRIPT ARGUMENTS`: see `lit_gans.check`.

The exit code is 1 if the ranks do not train one model, or if nothing was compared. If the ranks step different
optimizers, they wait for each other forever. Rank 0 then prints the difference, and kills the run once no optimizer has
stepped for `--patience` seconds.

A launcher such as torchrun must start all processes. A process that Lightning's own launcher starts runs the script
without the check.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from lit_gans.check.board import Board, board, counts_of, events_of
from lit_gans.check.findings import RankRecords, in_order, with_names_of_rank_0
from lit_gans.check.one_process import against_one_process, record_script, replay_script
from lit_gans.check.session import check_ranks

# a launcher sets one of them; SLURM_NTASKS is also set in a shell of a job, which starts a single process
_LAUNCHERS = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_OWN_OPTIONS = ("--against-one", "--steps", "--patience")


class _Watchdog(threading.Thread):
    """Thread that kills a run whose ranks step different optimizers, because they would wait for each other forever.

    Args:
        name: name of the check.
        patience: time without an optimizer step after which the run is killed, in seconds.
    """

    def __init__(self, name: str, patience: float) -> None:
        super().__init__(daemon=True)
        self.check, self.patience, self.ended = name, patience, threading.Event()

    def run(self) -> None:
        shared: Board | None = None
        before, since = 0, time.monotonic()
        while not self.ended.wait(min(2.0, self.patience)):
            shared = shared or board(self.check)  # without torchrun, the script creates the store
            if shared is None:
                continue
            if shared.rank > 0:
                return
            events = [[*events_of(shared, rank)] for rank in range(shared.world_size)]
            total = sum(sum(counts_of(shared, rank).values()) for rank in range(shared.world_size))
            if total > before:
                before, since = total, time.monotonic()
            differences = [*in_order(with_names_of_rank_0([RankRecords(events=each) for each in events]))]
            if differences and time.monotonic() - since > self.patience:
                print(
                    f"lit_gans.check: {differences[0]}\nlit_gans.check: the ranks wait for each other: ended.",
                    flush=True,
                )
                os.kill(os.getpid(), signal.SIGKILL)  # the main thread cannot exit while it waits for other ranks


def main(
    script: str, arguments: list[str], as_module: bool, steps: int, patience: float, against_one: int, replay: str
) -> int:
    """Runs a script in a check, prints the findings on rank 0, and returns the exit code."""
    sys.argv = [script, *arguments]
    sys.path[0] = "" if as_module else str(Path(script).resolve().parent)
    check = check_ranks(steps, patience)
    watchdog = _Watchdog(check.name, patience)
    watchdog.start()
    run = partial(runpy.run_module if as_module else runpy.run_path, script, run_name="__main__")
    try:
        with check:
            if replay:
                replay_script(run, Path(replay), against_one, lambda: check.recorder)
            elif against_one:
                record_script(run, against_one, lambda: check.recorder)
            else:
                run()
    except SystemExit as ended:
        own = _own_options(arguments)
        if own and ended.code == 2 and check.rank == 0:  # the exit code of argparse for a wrong command line
            print(f"lit_gans.check: options of the check come before {script}: {own[0]}.", flush=True)
        if ended.code not in (None, 0):  # a script that ends with sys.exit(0) must not hide the faults
            raise
    finally:
        watchdog.ended.set()
        watchdog.join()  # a thread that reads the store while the interpreter exits would abort the process
        if check.rank == 0 and not replay:
            if against_one and check.board is not None:
                again = ["--steps", str(steps), *(["-m"] if as_module else []), script, *arguments]
                check.findings += against_one_process(
                    check.board.world_size,
                    against_one,
                    again,
                    "local_statistics" in {each.kind for each in check.findings},
                )
            print(check.report(), flush=True)
    is_empty = check.rank == 0 and not replay and (check.board is None or not check.watched)
    return 1 if check.faults or is_empty else 0


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return int(text)


def _own_options(arguments: list[str]) -> list[str]:
    """Returns the arguments of the script that have the name of an option of the check."""
    return [each for each in arguments if each.partition("=")[0] in _OWN_OPTIONS]


def _wrong_command(options: argparse.Namespace) -> str:
    """Returns what is wrong with the command line, and the right command; empty if nothing is wrong."""
    torchrun = "torchrun --nproc_per_node 2 -m lit_gans.check"
    script = " ".join([*(["-m"] if options.as_module else []), options.script])
    rest = shlex.join(options.arguments)
    if not options.as_module and not Path(options.script).is_file():
        return f"there is no file {options.script}: give the path of the training script"
    if "--against-one" in (each.partition("=")[0] for each in options.arguments):  # no script has such an option
        return f"--against-one comes before the script: {torchrun} --against-one 3 {script}"
    if not options.replay and all(os.environ.get(name, "1") == "1" for name in _LAUNCHERS):
        return f"only one process was started, so nothing can be compared: {torchrun} {script} {rest}".strip()
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "lit_gans.check", description="Checks whether the ranks of a script train one model."
    )
    parser.add_argument("--steps", type=_positive, default=20, help="number of recorded steps per optimizer")
    parser.add_argument("--patience", type=float, default=60.0, help="maximum time to wait for a rank, in seconds")
    parser.add_argument(
        "--against-one", type=_positive, default=0, metavar="STEPS", help="compare with one process after STEPS steps"
    )
    parser.add_argument("--replay", default="", help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="as_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if wrong := _wrong_command(options):
        parser.error(wrong)
    sys.exit(main(**vars(options)))
