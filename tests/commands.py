"""Command lines that the tests share: the overrides of a tiny run, and the wait for what a process does."""

import subprocess
import time
from collections.abc import Callable

TINY = [
    "model=dcgan",
    "data=digits",
    "metrics=none",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
    "model.generator_width=4",
    "model.discriminator_width=4",
    "model.latent_dim=8",
    "data.image_size=16",
    "data.batch_size=500",  # ten iterations an epoch
    "callbacks.samples.num=4",
    "callbacks.checkpoint.every_n_train_steps=5",
    "logger=csv",
]

TINY_CLI = [
    "fit",
    "--model",
    "DCGAN",
    "--data",
    "Digits",
    "--trainer.logger=false",
    "--trainer.enable_progress_bar=false",
]
TINY_CLI += ["--trainer.accelerator=cpu", "--model.generator_width=4", "--model.discriminator_width=4"]
TINY_CLI += ["--trainer.enable_model_summary=false", "--trainer.max_epochs=-1"]


def wait_until(happened: Callable[[], bool], process: subprocess.Popen) -> None:
    """Waits for an event while a process runs."""
    while not happened():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
