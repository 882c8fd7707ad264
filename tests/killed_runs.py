"""Tiny trainings that are killed at a point of an iteration, and go on as `resume=auto` does."""

import os
import signal
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch

from lit_gans.callbacks import EMA, RunCheckpoint, Samples
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.checkpoints.locate import newest_good
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule
from lit_gans.training.trainer_backend import TrainerBackend
from tests.tiny import fit, random_images, tiny_gan

STEPS = 8  # three in an epoch; a checkpoint every 2, a measurement every 3
POINTS = ("epoch boundary", "mid-epoch", "mid-n_critic", "mid-evaluation", "mid-save")
ADAM = partial(OptimizerConfig, "Adam", lr=2e-4, betas=(0.5, 0.999))


class Killed(BaseException):
    """Stands for the end of the process: nothing of the training handles it."""


class Kill(Measurement):
    """Ends the training at a point of an iteration; measures the mean of samples otherwise."""

    headline = "metric/mean"

    def __init__(self, point, step, end):
        super().__init__(3, 1, 1, 0)
        self.point, self.step, self.end, self.steps_of_critics = point, step, end, 0
        self.directions = {"metric/mean": "min"}

    def measure(self, trainer, module):
        if self.point == "first evaluation" and trainer.global_step == 0:
            self.end()
        mean = module.sample_grid(4, 0, trainer.datamodule)[0].mean().item()
        if self.point == "mid-evaluation" and trainer.global_step >= self.step:
            self.end()
        return {"metric/mean": mean}

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        step = TrainerBackend.step

        def counted(backend, network):
            step(backend, network)
            if network != "generator" and trainer.global_step >= self.step and self.point == "mid-n_critic":
                self.steps_of_critics += 1
                if self.steps_of_critics == 2:
                    self.end()

        TrainerBackend.step = counted

    def on_train_batch_start(self, trainer, *_):
        if self.point == "mid-epoch" and trainer.global_step >= self.step and trainer.global_step % 3:
            self.end()

    def on_train_epoch_end(self, trainer, *_):
        if self.point == "epoch boundary" and trainer.global_step >= self.step:
            self.end()


def killed_while_saving(kill):
    """Lets torch.save write a part of a checkpoint, and ends the training."""
    save = torch.save

    def torn(content, path, *arguments):
        save(content, path, *arguments)
        if kill.point == "mid-save" and content["global_step"] >= kill.step:
            if not isinstance(kill.end, Signal):  # after which the save goes on
                os.truncate(path, Path(path).stat().st_size // 2)
            kill.end()

    return patch("torch.save", torn)


def raise_killed(*_):
    raise Killed


def kill_process():
    os.kill(os.getpid(), signal.SIGKILL)


class Signal:
    """Sends this process a signal, once."""

    def __init__(self, number):
        self.number, self.sent = number, False

    def __call__(self):
        if not self.sent:
            self.sent = True
            signal.raise_signal(self.number)


def train(folder, name, workers=0, point=None, step=0, end=raise_killed, world_size=1, strategy="auto", kind=ADAM):
    """Trains a GAN in a folder, from its newest good checkpoint, until the end or until it is killed."""
    torch.set_num_threads(1)
    folder, linear = Path(folder), LinearSchedule()
    optimizers = {f"{each}_optimizer": kind(schedule=linear) for each in ("generator", "discriminator")}
    module = tiny_gan(name, **optimizers, n_critic=2, seed=3)
    data = random_images(batch_size=8 // world_size, num_workers=workers)
    kill = Kill(point, step, end)
    found = newest_good(folder)
    with killed_while_saving(kill):
        return fit(
            module,
            data,
            STEPS,
            found and found[0],
            devices=world_size,
            strategy=strategy,
            default_root_dir=folder,
            logger=CSVMetrics(str(folder)),
            log_every_n_steps=1,
            callbacks=[EMA(0.5), kill, Samples(every_n_steps=3, num=4), RunCheckpoint(every_n_train_steps=2)],
            enable_checkpointing=True,
        )


def killed(folder, name, workers, point, step):
    """Trains in a process of its own until SIGKILL."""
    train(folder, name, workers, point, step, kill_process)


def results(folder):
    """Everything that a resumed training must have in common with an uninterrupted one."""
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    kept = ("global_step", "epoch", "state_dict", "optimizer_states", "generator_ema", "lr_schedulers")
    files = {path.name: path.read_bytes() for path in sorted((folder / "samples").glob("*.png"))}
    return {name: checkpoint[name] for name in kept}, (folder / "metrics.csv").read_text(), files


def assert_same(folder, expected, stopped_at=None):
    """Compares two trainings bitwise: weights, averages, moments, schedules, logged values and grids of samples, but
    for the grid that a training writes when it is stopped.
    """
    (ours, table, files), (theirs, expected_table, expected_files) = results(folder), results(expected)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert table == expected_table
    ours_alone = files.keys() - expected_files.keys()
    assert ours_alone <= {f"{stopped_at:06d}.png"} if stopped_at else not ours_alone
    assert {name: files[name] for name in expected_files} == expected_files
    assert not [*folder.rglob("*.lit_gans_part"), *folder.rglob("*.lit_gans_old")]


def trained_once(tmp_path_factory):
    """Returns a function that trains a GAN without interruption the first time, and returns its folder."""
    folders = {}

    def folder(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            train(folders[name], name)
        return folders[name]

    return folder
