"""Tiny trainings of `lit-gans bench soak`: their command lines, their processes, and what they must have in common."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

STEPS, SAVED_EVERY, MEASURED_EVERY, KEPT = 16, 2, 4, 3
PATIENCE = 1800.0  # seconds that a training may take
_GRACE = 300.0  # seconds until all processes of a training have ended, once the first has
_NUM_IMAGES = 48  # a step of SNGAN takes 40
_COMMAND = ["-m", "lit_gans", "train"]
_OF_GAN = {
    "sngan": ["model.spectral_generator=true"],
    "wgan_gp": ["model.critic_norm=layer", "model.n_critic=2"],
    "pix2pix": ["model.patch_depth=2"],
}


class Lost(Exception):
    """A broken promise: something was lost, repeated, left behind or done silently."""


@dataclass(frozen=True)
class Setting:
    """What is trained.

    Args:
        gan: name of the GAN.
        strategy: `auto` trains in one process, others in two.
        sharded: whether each process writes its shards.
    """

    gan: str
    strategy: str = "auto"
    sharded: bool = False

    def __str__(self) -> str:
        return " ".join([self.gan, self.strategy, *["sharded"] * self.sharded])

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return 1 if self.strategy == "auto" else 2

    def overrides(self, pictures: Path) -> list[str]:
        """Returns the command line after `lit-gans train`, without `resume`."""
        data = "paired_folder" if self.gan == "pix2pix" else "folder"
        checkpoints = [f"every_n_train_steps={SAVED_EVERY}", f"keep_last={KEPT}"]
        return [
            *(f"model={self.gan}", f"data={data}", f"data.root={pictures / data}", "metrics=digits"),
            *("data.image_size=16", f"data.batch_size={8 // self.ranks}", "logger=csv", "trainer.accelerator=cpu"),
            *("model.generator_width=4", "model.discriminator_width=4", "model.latent_dim=8", "seed=3"),
            *("metrics.num_samples=20", "metrics.batch_size=10", f"metrics.every_n_steps={MEASURED_EVERY}"),
            *(
                "callbacks.samples.num=4",
                f"callbacks.samples.every_n_steps={MEASURED_EVERY}",
                "trainer.log_every_n_steps=1",
            ),
            *("schedule@model.generator_optimizer.schedule=linear", "hydra.run.dir=run"),
            *(f"strategy={self.strategy}", f"trainer.devices={self.ranks}", f"trainer.max_steps={STEPS}"),
            *(f"callbacks.checkpoint.{each}" for each in checkpoints),
            *_OF_GAN.get(self.gan, []),
            *["trainer.strategy.sharded_checkpoints=true"] * self.sharded,
        ]


def write_pictures(folder: Path) -> None:
    """Writes random images, and pairs of them side by side."""
    random = np.random.default_rng(0)
    for name, width in (("folder", 16), ("paired_folder", 32)):
        (folder / name).mkdir(parents=True)
        for index in range(_NUM_IMAGES):
            pixels = random.integers(0, 256, (16, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index:02}.png")


class Training:
    """The processes of one `lit-gans train`, in a session of their own.

    Args:
        folder: folder in which the command runs; its cache is `cache`.
        overrides: command line.
        largest_file: number of bytes that a file can have, as on a full disk; None has no limit.

    Attributes:
        lines: output so far.
    """

    def __init__(self, folder: Path, overrides: list[str], largest_file: int | None = None) -> None:
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        given = {"OMP_NUM_THREADS": "1", "LIT_GANS_CACHE": str(folder / "cache"), "TMPDIR": str(temporary)}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, *_COMMAND, *overrides],
            cwd=folder,
            env=os.environ | given | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if largest_file is not None:
            import resource

            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (largest_file, largest_file))
        self._news = threading.Condition()
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        self.process.stdout.close()
        with self._news:
            self._closed = True
            self._news.notify_all()

    @property
    def output(self) -> str:
        """All output so far."""
        return "\n".join(self.lines)

    @property
    def iterations(self) -> list[int]:
        """Iterations that were trained, as printed."""
        found = (re.match(rf"iteration (\d+)/{STEPS} ", line) for line in [*self.lines])
        return [int(each[1]) for each in found if each]

    def wait_for(self, iteration: int) -> None:
        """Returns once an iteration was printed or the training has ended."""
        with self._news:
            if not self._news.wait_for(lambda: self._closed or iteration in self.iterations, PATIENCE):
                raise Lost(f"hangs before iteration {iteration}.")

    def end(self) -> int:
        """Returns the exit code once all processes have ended."""
        try:
            try:
                code = self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired as error:
                raise Lost("hangs.") from error
            until = time.monotonic() + _GRACE
            while processes_of(self.process.pid):
                if time.monotonic() > until:
                    raise Lost(f"process {processes_of(self.process.pid)} goes on after the first has ended.")
                time.sleep(0.05)
            with self._news:
                self._news.wait_for(lambda: self._closed, _GRACE)
            return code
        finally:
            self.kill()

    def kill(self) -> None:
        """Kills what is left of the processes."""
        for each in processes_of(self.process.pid):
            try:
                os.kill(each, 9)
            except ProcessLookupError:
                continue
        self.process.wait()
        until = time.monotonic() + PATIENCE
        while processes_of(self.process.pid) and time.monotonic() < until:
            time.sleep(0.01)


def processes_of(session: int) -> list[int]:
    """Returns the living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(its_session) == session and state not in "ZX":
            found.append(int(path.parent.name))
    return sorted(found)
