"""Requeues SLURM jobs that reach their time limit."""

from __future__ import annotations

import logging
import os
import subprocess

from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch import Trainer

from lit_gans.common._compat.lightning import cluster_environment

logger = logging.getLogger(__name__)


def requeue_signal(trainer: Trainer) -> int | None:
    """Returns the signal that SLURM sends before the time limit of a job, or None if the job is not requeued."""
    environment = cluster_environment(trainer)
    if not isinstance(environment, SLURMEnvironment) or not environment.auto_requeue:
        return None
    return environment.requeue_signal


def requeue_job() -> None:
    """Requeues this SLURM job. A failure is only logged, because the checkpoint has already been saved."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        command = ["scontrol", "requeue", job]
        subprocess.run(command, check=True, capture_output=True, encoding="utf-8", errors="replace")
    except (OSError, subprocess.CalledProcessError) as error:
        output = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        logger.warning("job %s could not be requeued: %s %s", job, error, output)
    else:
        logger.info("job %s is requeued", job)
