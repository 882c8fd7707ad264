"""A training in which a rank is killed, raises, hangs or stalls, for the tests of what becomes of the others."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from tests.commands import TINY

TIMEOUT = 8  # seconds that a rank waits for the others

STALLED = TIMEOUT + 4  # seconds after which a rank goes on that the others have given up

SABOTAGED = (
    f"STALLED = {STALLED}"
    + '''
import os, signal, time
from pathlib import Path
from lit_gans.models.dcgan import DCGAN


class Sabotaged(DCGAN):
    """Fails once, on one rank, in the iteration after the third."""

    def training_step(self, data, batch_idx):
        mark = Path("failed")
        how, rank = os.environ["SABOTAGE"].split()
        if self.trainer.global_step == 3 and self.global_rank == int(rank) and not mark.exists():
            mark.write_text(str(time.time()))
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raises":
                raise RuntimeError("sabotaged")
            time.sleep(STALLED if how == "stalls" else 1000)
        super().training_step(data, batch_idx)
'''
)
YAML = (
    "defaults: [_schema/sabotaged@_here_]\nimage_size: ${data.image_size}\nchannels: ${data.channels}\nseed: ${seed}\n"
)


def command_in(folder):
    """The command that trains a sabotaged GAN on some photographs in a folder."""
    (folder / "sabotaged.py").write_text(SABOTAGED)
    (folder / "mine/model").mkdir(parents=True)
    (folder / "mine/model/sabotaged.yaml").write_text(YAML)
    photos(folder / "photos")
    tiny = [
        item for item in TINY if not item.startswith(("model=", "data=", "data.batch_size", "callbacks.checkpoint"))
    ]
    return [
        "lit_gans.cli.train",
        "model=sabotaged",
        f"hydra.searchpath=[file://{folder / 'mine'}]",
        *tiny,
        "data=folder",
        "data.root=photos",
        "data.image_size=16",
        f"data.cache={folder / 'cache'}",  # packed by one rank, read by all
        "data.batch_size=8",  # four iterations an epoch
        "callbacks.checkpoint.every_n_train_steps=1",
        "trainer.devices=2",
        "trainer.max_steps=6",
    ]


def photos(folder):
    folder.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)):
        Image.fromarray(pixels).save(folder / f"{number}.png")


def environment(how, rank):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    return kept | {"LIT_GANS_IMPORT": "sabotaged", "SABOTAGE": f"{how} {rank}", "OMP_NUM_THREADS": "1"}


def processes_in(folder):
    """The processes whose working directory is the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if entry.resolve() == folder.resolve():
                found.append((entry.parent / "cmdline").read_bytes())
        except OSError:
            continue
    return found
