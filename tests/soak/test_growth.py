"""A long training holds at its end what it held after its warm-up: memory, open files and threads. Needs Linux."""

import statistics
import sys
import time

import psutil
import pytest

from tests.soak.runs import Training

STEPS, EVERY, MOST = 5000, 250, 1.02


def held(process):
    return {"memory": process.memory_info().rss, "files": process.num_fds(), "threads": process.num_threads()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_grows(tmp_path, processes):
    """The first fifth is warm-up: the medians of the second and the last fifth are compared."""
    training = Training(
        tmp_path,
        [
            *("model=dcgan", "data=digits", "metrics=digits", "data.image_size=16", "data.batch_size=4"),
            *("model.generator_width=2", "model.discriminator_width=2", "model.latent_dim=4", "hydra.run.dir=run"),
            *("metrics.num_samples=20", "metrics.batch_size=20", f"metrics.every_n_steps={EVERY}"),
            *("callbacks.samples.num=4", f"callbacks.samples.every_n_steps={EVERY}", f"trainer.max_steps={STEPS}"),
            *(f"callbacks.checkpoint.every_n_train_steps={EVERY}", "trainer.accelerator=cpu"),
            *(f"strategy={'auto' if processes == 1 else 'ddp'}", f"trainer.devices={processes}"),
        ],
    )
    samples = {}  # by process
    try:
        training.wait_for(1)
        while training.process.poll() is None:
            for process in training.alive():
                try:
                    samples.setdefault(process.pid, []).append(held(process))
                except psutil.Error:  # it ends
                    continue
            time.sleep(0.1)
        assert training.end() == 0, training.output
    finally:
        training.kill()
    longest = sorted(samples.values(), key=len)[-processes:]  # others are short-lived
    assert len(longest) == processes
    for of_process in longest:
        fifth = len(of_process) // 5
        assert fifth >= 5, "too short to say anything"
        for kind in ("memory", "files", "threads"):
            warm = statistics.median(each[kind] for each in of_process[fifth : 2 * fifth])
            end = statistics.median(each[kind] for each in of_process[-fifth:])
            assert end <= MOST * warm, f"{kind} grew from {warm} to {end}"
