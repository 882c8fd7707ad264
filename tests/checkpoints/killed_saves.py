"""Kills processes while they save: `python -m tests.checkpoints.killed_saves file|folder FOLDER KILLS`.

Each process is forked from this one, saves checkpoint after checkpoint under one name, and is killed at a random moment
of a save. After each kill the checkpoint is read as the next start would read it. Prints what was found, as JSON.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from itertools import count
from pathlib import Path

import torch
from lightning.pytorch.strategies import DDPStrategy

from lit_gans.checkpoints.format import CheckpointFiles, read_checkpoint
from lit_gans.checkpoints.sharded import write_sharded
from lit_gans.common.atomic import kept, sweep

NAME = "last.ckpt"
NUM = 40  # tensors, which all hold the number of the save


def state(number):
    tensors = {f"generator.{index}": torch.full((3000,), float(number)) for index in range(NUM)}
    return {"global_step": number, "state_dict": tensors, "optimizer_states": []}


def save_file(number, path):
    CheckpointFiles().save_checkpoint(state(number), path)


def save_folder(number, path):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.distributed is disabled.*")
        write_sharded(state(number), path, DDPStrategy(), tied={})


def save_for_ever(save, path, first, ready):
    """Saves under increasing numbers, and says when each save begins."""
    for number in count(first):
        os.write(ready, b".")
        save(number, path)


def kill_while_saving(save, path, first, moment):
    """Forks a process that saves, and kills it a while after the beginning of its second save."""
    heard, ready = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            save_for_ever(save, path, first, ready)
        finally:
            os._exit(1)
    os.close(ready)
    for _ in range(2):
        assert os.read(heard, 1), "the process ended by itself"
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    os.close(heard)


def main(kind, folder, kills):
    save, path = {"file": save_file, "folder": save_folder}[kind], Path(folder) / NAME
    start = time.perf_counter()
    for number in range(3):
        save(number, path)
    usual = (time.perf_counter() - start) / 3
    draw = random.Random(0)
    found = {"kills": kills, "unreadable": 0, "mixed": 0, "lost": 0, "left": 0, "interrupted": 0}
    last = 2
    for _ in range(kills):
        kill_while_saving(save, path, last + 1, draw.uniform(0, 1.2 * usual))
        found["interrupted"] += len(list(path.parent.iterdir())) > 1
        try:
            checkpoint = read_checkpoint(kept(path))
        except Exception as error:
            print(error, file=sys.stderr)
            found["unreadable"] += 1
            continue
        number = checkpoint["global_step"]
        found["mixed"] += any((value != number).any().item() for value in checkpoint["state_dict"].values())
        found["lost"] += number <= last  # the first save of each process was complete
        last = number
        sweep(path.parent, "*.ckpt")
        found["left"] += [*path.parent.iterdir()] != [path]
    print(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
