"""One training of `lit-gans bench soak`, from its first fault to its end, and what must hold in between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lit_gans.benchmark.soak_faults import FAULTS, largest_file
from lit_gans.benchmark.soak_results import difference, results, resumes_at, rows
from lit_gans.benchmark.soak_training import KEPT, MEASURED_EVERY, SAVED_EVERY, STEPS, Lost, Setting, Training
from lit_gans.data.packed.format import is_good

_REFUSED = 2
_STATISTICS = ".safetensors"  # read by the first measurement
_TEMPORARY = (".part", ".old", ".journal")


@dataclass
class Survived:
    """A fault, and how many iterations were trained again after it."""

    fault: str
    repeated: int = 0


@dataclass
class SoakRun:
    """A training that is interrupted, and resumed until it ends.

    Args:
        setting: what is trained.
        folder: folder of the run and its cache.
        pictures: folder of the images.
        faults: what happens to it, one after the other.
        draw: random numbers of the faults.

    Attributes:
        begins_at: iteration after which the current process begins.
        survived: faults so far.
    """

    setting: Setting
    folder: Path
    pictures: Path
    faults: list[str]
    draw: random.Random
    begins_at: int = 0
    survived: list[Survived] = field(default_factory=list)
    _at_least: int = 0  # iteration that the next process must begin after
    _reached: int = 0
    _named: list[str] = field(default_factory=list)  # what the next process must name
    _to_name: list[str] = field(default_factory=list)  # what this process must name
    _stopped_at: list[int] = field(default_factory=list)
    _rows_lost: set[int] = field(default_factory=set)

    @property
    def run(self) -> Path:
        """Folder of the run."""
        return self.folder / "run"

    def train(self, reference: dict[str, Any]) -> None:
        """Trains until the end.

        Args:
            reference: results of an uninterrupted training.

        Raises:
            Lost: something was lost.
        """
        self.folder.mkdir(parents=True)
        for name in self.faults:
            training = self._start(largest_file(name, self.draw))
            try:
                self.survived.append(Survived(name))
                FAULTS[name](self, training, self.draw)
            finally:
                training.kill()
                self._log(training)
            self._check(training)
        training = self._start(None)
        code = training.end()
        self._log(training)
        if code:
            raise Lost(f"does not end after {self.faults}: exit code {code}.")
        self._check(training)
        self._finished(reference)

    def _log(self, training: Training) -> None:
        with (self.folder / "output.txt").open("a") as file:
            file.write(training.output + "\n---\n")

    def _start(self, limit: int | None) -> Training:
        begins = resumes_at(self.run)
        overrides = self.setting.overrides(self.pictures)
        if begins is None:
            if self._at_least:
                raise Lost(f"no checkpoint is good, that of iteration {self._at_least} should be.")
            refused = Training(self.folder, [*overrides, "resume=auto"])
            if refused.end() != _REFUSED or "resume=none starts a new run" not in refused.output:
                raise Lost("all checkpoints are damaged, and resume=auto does not refuse them.")
            begins, self._rows_lost, self._named = 0, set(), []
            resume = "resume=none"
        else:
            resume = "resume=auto"
        if begins < self._at_least:
            raise Lost(f"continues at {begins}, the checkpoint of iteration {self._at_least} was written.")
        if self.survived:
            self.survived[-1].repeated = max(self._reached - begins, 0)
        self.begins_at = self._reached = begins
        self._to_name, self._named = self._named, []
        return Training(self.folder, [*overrides, resume], limit)

    def _check(self, training: Training) -> None:
        """Checks what a process trained and said."""
        trained = training.iterations
        if trained and trained != list(range(self.begins_at + 1, self.begins_at + 1 + len(trained))):
            raise Lost(f"trained {trained} after the checkpoint of iteration {self.begins_at}.")
        measured = any(iteration % MEASURED_EVERY == 0 for iteration in trained[:-1])
        for name in self._to_name:
            if name in training.output:
                continue
            if trained and (measured or not name.endswith(_STATISTICS)):
                raise Lost(f"{name} is damaged, and nothing says so.")
            self._named.append(name)  # not read yet

    # ---- what faults report

    def interrupted(self, training: Training) -> None:
        """A process ended in the middle: the last checkpoint before its last iteration must be good."""
        self._reached = max([self._reached, *training.iterations])
        self._at_least = self._saved()
        self._whole(training)

    def stopped(self, training: Training) -> None:
        """A process was asked to stop: nothing may be repeated."""
        self._at_least = self._reached = max([self._reached, *training.iterations])
        self._stopped_at.append(self._reached)
        self._whole(training)

    def _whole(self, training: Training) -> None:
        """Checks that no file has its final name before it is complete, but one still damaged that was not read yet."""
        good = resumes_at(self.run)
        if good is not None and good < self._at_least:
            raise Lost(f"the newest good checkpoint is that of iteration {good}, not of {self._at_least}.")
        for path in (self.folder / "cache").glob("*.packed"):
            unread = path.name in self._to_name and path.name not in training.output
            if not is_good(path) and not unread:
                raise Lost(f"{path.name} is not complete.")

    def file(self, what: str, draw: random.Random) -> Path | None:
        """Returns a file that exists: the newest checkpoint, or one of its shards; or one of the cache."""
        cache = self.folder / "cache"
        if what == "checkpoint":
            path = self.run / "checkpoints/last.ckpt"
            inside = sorted(each for each in path.rglob("*") if each.is_file())
            return path if path.is_file() else draw.choice(inside) if inside else None
        if what == "metrics.csv":
            return self.run / what if (self.run / what).is_file() else None
        pattern = "*.packed" if what == "packed file" else "references/*.safetensors"
        return next(iter(sorted(cache.glob(pattern))), None)

    def damaged(self, what: str, path: Path, before: bytes, lost: range) -> None:
        """A file was damaged: it must be named, and what it had is found elsewhere."""
        begins = resumes_at(self.run)
        if what == "checkpoint":
            self._at_least = max(self._at_least - SAVED_EVERY, 0)
            self._named += ["last.ckpt"] if begins is not None and begins < self._saved() else []
        elif what == "packed file":
            self._named += [] if is_good(path) else [path.name]
        elif what == "statistics":
            self._named.append(path.name)
        else:
            damaged = _rows_at(before, lost)
            self._rows_lost |= damaged
            self._named += [path.name] if any(step < (begins or 0) for step in damaged) else []

    def _saved(self) -> int:
        """Returns the iteration whose checkpoint was certainly written."""
        return max(self.begins_at, (self._reached - 1) // SAVED_EVERY * SAVED_EVERY)

    # ---- the end

    def _finished(self, reference: dict[str, Any]) -> None:
        ours, theirs = results(self.run), dict(reference["results"])
        for step in self._stopped_at:  # a training that is asked to stop writes a grid, which the animation shows too
            if f"{step:06d}.png" not in theirs:
                ours.pop(f"{step:06d}.png", None)
                ours["training.gif"] = theirs["training.gif"]
        if self._stopped_at:  # and a checkpoint, which is then one of the last
            saved = sorted({*range(SAVED_EVERY, STEPS + 1, SAVED_EVERY), *self._stopped_at})[-KEPT:]
            names = [name for name in theirs["checkpoints"] if not name.startswith("step-")]
            theirs["checkpoints"] = sorted([*names, *(f"step-{step:08d}.ckpt" for step in saved)])
        found = difference(ours, theirs)
        if found is not None:
            raise Lost(f"{found} from an uninterrupted training.")
        logged = rows(self.run)
        wrong = [step for step, row in logged.items() if not self._is_right(step, row, reference["rows"].get(step, {}))]
        missing = reference["rows"].keys() - logged.keys() - self._rows_lost
        if wrong or missing:
            raise Lost(f"metrics.csv differs in rows {wrong} and lacks {sorted(missing)}.")
        left = [path.name for path in self.folder.rglob("*") if path.name.endswith(_TEMPORARY)]
        left += [path.name for path in self.folder.glob("cache/references/*") if path.suffix != _STATISTICS]
        if left:
            raise Lost(f"{left} are left behind.")

    def _is_right(self, step: int, row: dict[str, str], expected: dict[str, str]) -> bool:
        """Whether a row is the expected one; of a damaged row, what is logged after the resume is there again."""
        return row.items() <= expected.items() if step in self._rows_lost else row == expected


def _rows_at(content: bytes, lost: range) -> set[int]:
    """Returns the rows of metrics.csv that have lost bytes; without the header, all are lost."""
    found, offset = set(), 0
    header, *lines = content.splitlines(keepends=True)
    if lost.start < len(header):
        return set(range(STEPS + 1))
    offset = len(header)
    for line in lines:
        if lost.start < offset + len(line) and offset < lost.stop and line.partition(b",")[0].isdigit():
            found.add(int(line.partition(b",")[0]))
        offset += len(line)
    return found
