"""Commands that a signal stops before a training has begun: customary exit codes, and packing that goes on."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from lit_gans.cli.main import stopped
from tests.commands import TINY, wait_until
from tests.strategies.ranks import command_line

NUM = 3000
TRAIN = ["train", *(item for item in TINY if not item.startswith(("data=", "data.batch"))), "trainer.max_steps=1"]
COMMANDS = {"pack": ["pack"], "train": [*TRAIN, "data.batch_size=8", "data.image_size=16", "data.channels=3"]}


def interrupted():
    raise KeyboardInterrupt


def as_lightning_ends():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)


def test_exit_codes(capsys):
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    def terminated():
        raise SIGTERMException

    assert [stopped(end) for end in (interrupted, as_lightning_ends, terminated, lambda: 2)] == [130, 130, 143, 2]
    assert capsys.readouterr().err.splitlines() == [
        *["lit-gans: stopped by Ctrl-C."] * 2,
        "lit-gans: stopped by SIGTERM.",
    ]
    with pytest.raises(SystemExit, match="7"):
        stopped(lambda: sys.exit(7))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder whose packing takes seconds: links to one large picture."""
    folder = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    Image.fromarray(noise).save(folder / "00000.png")
    for number in range(1, NUM):
        os.link(folder / "00000.png", folder / f"{number:05d}.png")
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "number", "codes"),
    [
        pytest.param("pack", signal.SIGINT, (130,), marks=pytest.mark.faults),
        pytest.param("train", signal.SIGTERM, (143, -signal.SIGTERM), marks=pytest.mark.faults),
    ],
)
def test_a_signal_ends_packing_and_the_next_command_continues_it(pictures, tmp_path, name, number, codes):
    """As a terminal does, it goes to the worker processes too; a shell shows the death by a signal as 128 more."""
    command = [sys.executable, "-m", "lit_gans", *COMMANDS[name], "data=folder", f"data.root={pictures}"]
    command += ["data.image_size=16"]
    place = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    place["env"] = os.environ | {"LIT_GANS_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(command, start_new_session=True, **place)
    rows = "cache/*.part/rows.jsonl"
    wait_until(lambda: any(path.read_text().count("\n") > 1 for path in tmp_path.glob(rows)), process)
    os.killpg(process.pid, number)
    output, _ = process.communicate()
    assert process.returncode in codes, output
    assert "Traceback" not in output
    assert not [*tmp_path.glob("cache/*.packed")]
    (images,) = tmp_path.glob("cache/*.part/images.npy")
    packed = images.stat().st_size // (16 * 16 * 3)
    assert 0 < packed < NUM
    (code,), printed = command_line(command[3:], tmp_path, [place["env"]])
    assert code == 0, printed
    assert len([*tmp_path.glob("cache/*.packed")]) == 1
    assert not [*tmp_path.glob("cache/*.part")]
