"""Tiny trainings of `lit-gans train` in processes of their own, and what two of them must have in common."""

import csv
import os
import re
import resource
import subprocess
import sys
import time

import numpy as np
import psutil
import torch
from PIL import Image
from safetensors.torch import load_file

from lit_gans.checkpoints.locate import checkpoints_of, verified_iteration
from lit_gans.common.errors import RefusedInput

STEPS, SAVED_EVERY, MEASURED_EVERY, KEPT = 16, 2, 4, 3
PATIENCE = 300.0  # seconds that a training may take on a busy machine
OF_GAN = {
    "sngan": ["model.spectral_generator=true"],
    "wgan_gp": ["model.critic_norm=layer", "model.n_critic=2"],
    "pix2pix": ["model.patch_depth=2"],
    "cyclegan": ["model.patch_depth=2"],
    "autoencoder_kl": [
        *("model.patch_depth=2", "model.multipliers=[1,2]", "model.blocks=1", "model.perceptual=none"),
        "model.discriminator_start=5",  # between two saves
    ],
}
OF_TIME = ("throughput/", "utilization/")
SAME = ("global_step", "epoch", "state_dict", "optimizer_states", "generator_ema", "lr_schedulers")


def write_pictures(folder):
    """Writes random images, and pairs of them side by side; a step of SNGAN takes 40."""
    random = np.random.default_rng(0)
    for name, width in (("folder", 16), ("paired_folder", 32), ("unpaired/A", 16), ("unpaired/B", 16)):
        (folder / name).mkdir(parents=True)
        for index in range(48):
            pixels = random.integers(0, 256, (16, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index:02}.png")


def overrides(gan, strategy, sharded, pictures):
    data = {"pix2pix": "paired_folder", "cyclegan": "unpaired"}.get(gan, "folder")
    ranks = 1 if strategy == "auto" else 2
    return [
        *(f"model={gan}", f"data={data}", f"data.root={pictures / data}", "metrics=digits", "logger=csv", "seed=3"),
        *("data.image_size=16", f"data.batch_size={8 // ranks}", "trainer.accelerator=cpu", "hydra.run.dir=run"),
        *("model.generator_width=4", "model.discriminator_width=4", "model.latent_dim=8"),
        *("metrics.num_samples=20", "metrics.batch_size=10", f"metrics.every_n_steps={MEASURED_EVERY}"),
        *("callbacks.samples.num=4", f"callbacks.samples.every_n_steps={MEASURED_EVERY}"),
        *(f"callbacks.checkpoint.every_n_train_steps={SAVED_EVERY}", f"callbacks.checkpoint.keep_last={KEPT}"),
        *("schedule@model.generator_optimizer.schedule=linear", "trainer.log_every_n_steps=1"),
        *(f"strategy={strategy}", f"trainer.devices={ranks}", f"trainer.max_steps={STEPS}", *OF_GAN.get(gan, [])),
        *["trainer.strategy.sharded_checkpoints=true"] * sharded,
    ]


class Training:
    """The processes of one `lit-gans train`.

    Args:
        folder: folder in which the command runs; its cache is `cache`.
        arguments: overrides.
        largest_file: number of bytes that a file can have, as on a full disk; None has no limit.
    """

    def __init__(self, folder, arguments, largest_file=None):
        self.log = folder / "output.txt"
        (folder / "temporary").mkdir(exist_ok=True)
        given = {"OMP_NUM_THREADS": "1", "LIT_GANS_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "temporary")}
        given["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as file:
            command = [sys.executable, "-m", "lit_gans", "train", *arguments]
            kind = {"stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True}
            self.process = psutil.Popen(command, cwd=folder, env=os.environ | given, **kind)
        if largest_file is not None:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (largest_file, largest_file))
        self.seen = {self.process.pid: self.process}  # another object would reap it, and Popen warn of its loss

    @property
    def output(self):
        return self.log.read_bytes()[self._before :].decode(errors="replace")

    @property
    def iterations(self):
        """Iterations that were trained, as printed."""
        return [int(number) for number in re.findall(r"^iteration (\d+)/\d+ ", self.output, re.MULTILINE)]

    def alive(self):
        """Returns the processes that run, those whose parent has ended included."""
        for process in list(self.seen.values()):
            try:
                self.seen |= {each.pid: each for each in process.children(recursive=True)}
            except psutil.NoSuchProcess:
                continue
        return [each for each in self.seen.values() if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def wait_for(self, iteration):
        """Returns once an iteration was printed or the training has ended."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None and (not self.iterations or self.iterations[-1] < iteration):
            self.alive()
            assert time.monotonic() < until, f"hangs before iteration {iteration}"
            time.sleep(0.02)

    def end(self):
        """Returns the exit code; no other process may go on."""
        self.alive()
        try:
            code = self.process.wait(PATIENCE)
            assert not psutil.wait_procs(self.alive(), 60)[1], "a process goes on after the first has ended"
            return code
        finally:
            self.kill()

    def kill(self):
        for process in self.alive():
            process.kill()
        psutil.wait_procs(self.seen.values(), 60)


def resumes_at(run):
    """Returns the iteration at which `resume=auto` must continue: 0 without checkpoints, None if none is good."""
    paths, found = checkpoints_of(run), {}
    for path in paths:
        try:
            found[path.name] = verified_iteration(path)
        except RefusedInput:
            continue
    last = "last.ckpt" if (run / "checkpoints/last.ckpt").exists() else "last.ckpt.lit_gans_old"
    return found.get(last, max(found.values(), default=None)) if paths else 0


def results(run):
    """Returns all that a resumed training must have in common with an uninterrupted one, by name."""
    found = {
        f"{name} {k}": v for name in ("last", "best") for k, v in content(run / f"checkpoints/{name}.ckpt").items()
    }
    return found | {path.name: path.read_bytes() for path in [*run.glob("samples/*.png"), run / "protocol.json"]}


def content(path):
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix in (".pt", ".safetensors"))
        return {f"{file.relative_to(path)}/{key}": v for file in files for key, v in content(file).items()}
    if path.suffix == ".safetensors":
        return load_file(path)
    found = torch.load(path, weights_only=False, map_location="cpu")  # this process has made it
    return {key: found[key] for key in SAME if key in found} if "global_step" in found else found


def rows(run):
    """Returns the logged values of each iteration, without those that depend on the time."""
    with (run / "metrics.csv").open(newline="") as file:
        return {
            int(row["step"]): {name: value for name, value in row.items() if value and not name.startswith(OF_TIME)}
            for row in csv.DictReader(file)
        }


def same(ours, theirs):
    """Returns whether two nested values are bitwise the same."""
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs) or (hasattr(ours, "__dict__") and same(vars(ours), vars(theirs)))
