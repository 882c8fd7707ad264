"""Context manager that records optimizer steps while the script runs, and compares the ranks at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType

from lit_gans.check.board import Board, board, collected
from lit_gans.check.findings import Finding, compare
from lit_gans.check.recorder import Recorder
from lit_gans.check.records import End, StepStart, dumped
from lit_gans.common.errors import refuse_below


class check_ranks:  # noqa: N801 - used as a function
    """Context manager that checks whether the ranks train one model. On exit, rank 0 stores the result in `findings`.

        with check_ranks() as check:
            train()
        assert not check.faults

    The check changes no random numbers, gradients or weights, and does not synchronize the ranks inside the context. On
    exit, rank 0 waits for the other ranks.

    Args:
        steps: number of recorded steps per optimizer.
        patience: maximum wait of rank 0 for each other rank on exit, in seconds.
        name: name of the check, unique within a run.

    Raises:
        RefusedInput: if `steps` is below 1.

    Attributes:
        findings: findings of rank 0, faults first; empty on other ranks and on a single process.
        recorder: recorder of this rank; None before the context is entered.
        watched: number of steps of each optimizer on this rank, by the name of the optimizer.
    """

    def __init__(self, steps: int = 20, patience: float = 60.0, name: str = "check") -> None:
        refuse_below(1, steps=steps)
        self.steps, self.patience, self.name = steps, patience, name
        self.findings: list[Finding] = []
        self.watched: dict[str, int] = {}
        self.board: Board | None = None
        self._unpublished: list[tuple[str, bytes]] = []  # records from before the board existed
        self.recorder: Recorder | None = None
        self._num_events = 0

    @property
    def faults(self) -> list[Finding]:
        """The findings that are faults."""
        return [finding for finding in self.findings if finding.is_fault]

    def __enter__(self) -> check_ranks:
        self.recorder = Recorder(
            self.steps, lambda name, record: self._publish(name, dumped(record)), self._event, self._count
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.finish(error)

    @property
    def rank(self) -> int:
        """Rank of this process; 0 on a single process."""
        return 0 if self.board is None else self.board.rank

    def has_watched(self, num_optimizers: int) -> bool:
        """Returns whether `num_optimizers` optimizers or more have stepped, each of them at least `steps` times."""
        numbers = {} if self.recorder is None else self.recorder.numbers
        return len(numbers) >= num_optimizers and all(number >= self.steps for number in numbers.values())

    def close(self) -> None:
        """Ends the check without comparing anything."""
        if self.recorder is not None:
            self.recorder.close()

    def finish(self, error: BaseException | None = None) -> None:
        """Ends the check; rank 0 waits for the other ranks and compares their records.

        Args:
            error: error that ended the training, or None.
        """
        recorder = self.recorder
        assert recorder is not None, "the context has begun"
        recorder.close()
        self.watched = dict(recorder.numbers)
        ends_well = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        message = f"the check failed: {recorder.error}" if recorder.error else ""
        self._publish("end", dumped(End(self.watched, message if ends_well else f"{type(error).__name__}: {error}")))
        if self.board is not None and self.board.rank == 0:
            names = recorder.states, recorder.calls
            self.findings = compare(collected(self.board, self.steps, *names, self.patience))
            self._publish("verdict", str(len(self.faults)).encode())

    def num_faults_on_rank_0(self) -> int:
        """Returns the number of faults on rank 0. All ranks can call it; the other ranks wait for rank 0."""
        if self.board is None or self.board.rank == 0:
            return len(self.faults)
        waits = self.patience * self.board.world_size
        return int(self.board.read(0, "verdict") or 0) if self.board.wait(0, "verdict", waits) else 0

    def _event(self, event: StepStart) -> None:
        self._publish(f"event/{self._num_events}", dumped(event))
        self._num_events += 1

    def _count(self, numbers: Mapping[str, int]) -> None:
        if self.board is not None:  # on a single process, unpublished counts would grow without end
            self.board.publish("counts", json.dumps(numbers).encode())

    def _publish(self, name: str, record: bytes) -> None:
        self.board = self.board or board(self.name)
        self._unpublished.append((name, record))
        if self.board is not None:
            for each in self._unpublished:
                self.board.publish(*each)
            self._unpublished = []

    def report(self) -> str:
        """Returns one line per finding, followed by a summary line."""
        if self.board is None:
            return "lit_gans.check: there is only one process: start several processes with torchrun."
        num_faults = len(self.faults)
        is_partial = any(finding.kind == "skipped" for finding in self.findings)
        right = "show no fault in what could be compared" if is_partial else "train one model"
        verdict = "do not train what a single process would train" if num_faults else right
        watched = ", ".join(f"{min(number, self.steps)} steps of {name}" for name, number in self.watched.items())
        lines = [
            *map(str, self.findings),
            f"{self.board.world_size} ranks {verdict}: {num_faults} faults, {len(self.findings) - num_faults} notes."
            f" Watched: {watched}."
            if watched
            else "no optimizer has stepped, so nothing was compared.",
        ]
        return "\n".join(f"lit_gans.check: {line}" for line in lines)
